"""One attack's surroundings: a directory, a little data, the program's processes, and what must hold afterwards."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unicodedata

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
from program_case import write_tiny

LIMIT = 60  # seconds: whatever takes longer hangs
EPOCHS = 30
ROOT_CAUSE = re.compile(r"^\[rank (\d+)\] (?:was killed by|ended with)", re.MULTILINE)
FINGERPRINT = re.compile(r"epoch=(\d+) .*hash=(\w+)")


class Failed(Exception):
    """An invariant does not hold."""


def require(condition, what):
    if not condition:
        raise Failed(what)


class Job:
    def __init__(self, program, directory):
        self.program, self.directory, self.runs = program, directory, []
        self.environment = {**os.environ, "RINGGRAD_DATA_DIR": str(directory / "data"), "RINGGRAD_THREADS": "1",
                            "RINGGRAD_CACHE_DIR": str(directory / "cache"), "RINGGRAD_ATTACK": str(directory)}

    # ---- what is attacked ------------------------------------------------------------------------------------------

    def start(self, *words, program=None, environment={}, **options):
        child = subprocess.Popen([program or self.program, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True, errors="replace", cwd=self.directory,
                                 env={**self.environment, **environment}, **options)
        child.words, child.said = words, ""
        self.runs.append(child)
        return child

    def training(self, ranks, transport, *words, **options):
        """Half a second of training on a few images; the run is in `run`."""
        among = ["--ranks", ranks, "--transport", transport] if ranks > 1 else ["--parallel", "none"]
        return self.start("train", "--batch", 12, "--epochs", EPOCHS, "--save-every", 5, "--out", "run", *among, *words, **options)

    def write_data(self):
        write_tiny(self.directory / "data/digits")

    def finish(self, child, *codes):
        """Waits for its end; the exit code must be one of these."""
        try:
            child.said += child.communicate(timeout=LIMIT)[0]
        except subprocess.TimeoutExpired:
            raise Failed(f"{child.words} still runs after {LIMIT} s") from None
        require(child.returncode in codes, f"{child.words} ended with {child.returncode}, expected one of {codes}")
        self.check_printable(child.said)
        return child.said

    def run(self, *words, codes=(0,), **options):
        return self.finish(self.start(*words, **options), *codes)

    def ranks_of(self, child, count):
        """Process ids by rank, once all have started; fewer where the job ends before."""
        listed = pathlib.Path(f"/proc/{child.pid}/task/{child.pid}/children")
        pids = []
        while len(pids) < count and child.poll() is None:
            try:
                pids = [int(pid) for pid in listed.read_text().split()]
            except FileNotFoundError:
                break
        return pids

    # ---- what must hold --------------------------------------------------------------------------------------------

    def check_one_cause(self, said, ranks):
        """The report names one root cause, one of these ranks."""
        causes = {int(rank) for rank in ROOT_CAUSE.findall(said)}
        require(len(causes) == 1 and causes <= set(ranks), f"causes {causes}, expected one of the ranks {ranks}")

    def check_not_accused(self, said, rank):
        for accusation in (f"[rank {rank}] was killed", f"rank {rank} does not answer: it is stopped"):
            require(accusation not in said, f"rank {rank} is accused, and was left alone")

    def check_printable(self, said):
        """No file or argument speaks to the terminal."""
        harmful = {c for c in said if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\r\t"}  # controls, no UTF-8
        require(not harmful, f"{harmful} is printed")

    def check_unchanged(self, before, after):
        changed = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
        require(not changed, f"refused, and yet changed: {changed}")

    def check_same_bits(self, *said):
        """Whatever these runs say of an epoch, they agree on it."""
        known = {}
        for text in said:
            for epoch, fingerprint in FINGERPRINT.findall(text):
                require(known.setdefault(epoch, fingerprint) == fingerprint, f"epoch {epoch} has two results")

    def check_checkpoints(self):
        for path in self.directory.glob("run*/*.safetensors"):
            self.run("inspect", path)

    def check_nothing_is_left(self):
        self.check_checkpoints()
        parts = list(self.directory.rglob("*.part"))
        require(not parts, f"left behind: {parts}")
        shared = [path for path in pathlib.Path("/dev/shm").glob("*ringgrad*")]
        require(not shared, f"left in shared memory: {shared}")
        until = time.monotonic() + 5  # those whose launcher was killed are being killed
        while (orphans := self.processes()) and time.monotonic() < until:
            time.sleep(0.01)
        require(not orphans, f"processes are left: {orphans}")

    def processes(self):
        """Returns the processes with this job's environment, except zombies."""
        mark, found = f"RINGGRAD_ATTACK={self.directory}".encode(), []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0") and ") Z " not in (entry / "stat").read_text():
                    found.append(int(entry.name))
            except OSError:  # it has ended
                pass
        return found

    # ---- afterwards ------------------------------------------------------------------------------------------------

    def log(self):
        return "".join(f"--- {' '.join(map(str, child.words))}: {child.returncode}\n{child.said}\n" for child in self.runs)

    def end(self):
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        for child in self.runs:
            child.stdout.close()
            child.wait()
