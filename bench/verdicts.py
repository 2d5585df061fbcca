#!/usr/bin/env python3
"""Measures how often the verdict at the end of a run is right. Injects trouble into runs, many times: verdicts.py RINGGRAD
[rounds].

It checks the tables of tests/program/verdict_cases.py, and then real runs: those of that file, and those that need the whole
machine (a quota of processor time, a program beside a rank, healthy runs). Prints a row for each kind: runs, right, wrong,
silent."""

import contextlib, json, os, pathlib, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/program"))
from verdict_cases import REAL, TABLES, write

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
QUOTA = pathlib.Path("/sys/fs/cgroup/cpu/ringgrad-verdicts")  # version 1, or the single hierarchy of version 2
if pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists():
    QUOTA = pathlib.Path("/sys/fs/cgroup/ringgrad-verdicts")


@contextlib.contextmanager
def quota(cores):
    """A control group whose processes may use this many cores."""
    QUOTA.mkdir(exist_ok=True)
    try:
        if (QUOTA / "cpu.max").exists():
            (QUOTA / "cpu.max").write_text(f"{int(cores * 100000)} 100000")
        else:
            (QUOTA / "cpu.cfs_quota_us").write_text(str(int(cores * 100000)))
        yield lambda: (QUOTA / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        QUOTA.rmdir()


@contextlib.contextmanager
def busy(programs):
    """This many programs that only compute."""
    children = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(programs)]
    try:
        yield None
    finally:
        for child in children:
            child.kill()
            child.wait()


# name: (words for `train`, the surroundings, the right verdicts)
STEPS = ["--epochs", "2"]
ALONE = {
    "healthy, two ranks": (STEPS, contextlib.nullcontext, "healthy"),
    "healthy, one process": ([*STEPS, "--parallel", "none"], contextlib.nullcontext, "healthy"),
    "healthy, ResNet": (["--model", "resnet20", "--max-steps", "30"], contextlib.nullcontext, "healthy"),
    "a quota of a fifth of a core": (["--epochs", "1"], lambda: quota(0.2), "throttled"),
    "programs on all cores": (["--epochs", "1"], lambda: busy(2 * os.cpu_count()), "busy-processor"),
    "twice as many ranks as cores": (["--epochs", "1", "--batch", "128", "--ranks", str(2 * os.cpu_count())], contextlib.nullcontext,
                                     "oversubscribed"),
    "DataParallel": ([*STEPS, "--parallel", "dp"], contextlib.nullcontext, "data-parallel"),
    "buckets of 1 kB": (["--epochs", "1", "--bucket-mb", "0.001"], contextlib.nullcontext, "small-buckets"),
}


def verdict_of(words, folder, before=None, **environment):
    done = subprocess.run([PROGRAM, "train", "--json", "--no-report", "--out", folder, *words], capture_output=True, text=True,
                          preexec_fn=before, env={**os.environ, "RINGGRAD_DATA_DIR": str(DATA), **environment})
    return json.loads(done.stdout)["verdict"]["name"] if done.returncode == 0 else None


def verdict_of_killed(words, folder, **environment):
    """The verdict on a run that is killed in its second epoch."""
    child = subprocess.Popen([PROGRAM, "train", "--parallel", "none", "--no-report", "--out", folder, *words], stderr=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, text=True, env={**os.environ, "RINGGRAD_DATA_DIR": str(DATA), **environment})
    next(line for line in child.stdout if line.startswith("epoch=1"))
    child.kill()
    child.communicate()
    told = subprocess.run([PROGRAM, "watch", folder, "--json"], capture_output=True, text=True).stdout
    return json.loads(told)["verdict"]["name"]


# name: (words for `train`, environment, the right verdicts)
KILLED = {
    "killed, slow loader": (["--batch", "512"], {"RINGGRAD_SLOW": "data:60"}, "input-bound"),
    "killed, slow optimizer": (["--batch", "512"], {"RINGGRAD_SLOW": "optimizer:60"}, "small-batch"),
    "killed, healthy until then": ([], {}, "killed"),
}


def count(rows, kind, name, got, expected):
    row = rows.setdefault((kind, name), [0, 0, 0, 0, set()])
    row[0] += 1
    if got in expected.split("|"):
        row[1] += 1
        return
    row[3 if got in (None, "healthy", "too-short") else 2] += 1
    row[4].add(str(got))


rows = {}
with tempfile.TemporaryDirectory() as temporary:
    folder = pathlib.Path(temporary)
    DATA = folder / "data"
    for number, (files, _, _) in enumerate(TABLES.values()):
        write(files, folder / f"tables/{number:03}")
    listed = json.loads(subprocess.run([PROGRAM, "runs", folder / "tables", "--json"], capture_output=True, text=True).stdout)["runs"]
    for entry, (name, (_, expected, _)) in zip(listed, TABLES.items()):
        count(rows, "table", name, entry["verdict"]["name"], expected)
    for turn in range(ROUNDS):
        for name, (words, environment, expected, _) in REAL.items():
            got = verdict_of(words, folder / f"real-{turn}-{name}", **environment)
            count(rows, "run", name, got, expected)
        for name, (words, environment, expected) in KILLED.items():
            count(rows, "run", name, verdict_of_killed(words, folder / f"killed-{turn}-{name}", **environment), expected)
        for name, (words, around, expected) in ALONE.items():
            try:
                with around() as before:
                    got = verdict_of(words, folder / f"alone-{turn}-{name}", before)
            except OSError as problem:
                print(f"left out: {name}: {problem}", file=sys.stderr)
                continue
            count(rows, "run", name, got, expected)

print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
print("| kind | trouble | runs | right | wrong | silent | instead |\n| :--- | :--- | ---: | ---: | ---: | ---: | :--- |")
for (kind, name), (runs, right, wrong, silent, instead) in rows.items():
    print(f"| {kind} | {name} | {runs} | {right} | {wrong} | {silent} | {', '.join(sorted(instead))} |")
for kind in ("table", "run"):
    some = [row for (k, _), row in rows.items() if k == kind]
    runs, right = sum(row[0] for row in some), sum(row[1] for row in some)
    print(f"\n{kind}s: {right} of {runs} right, {100 * right / max(1, runs):.1f} %")
