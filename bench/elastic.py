#!/usr/bin/env python3
"""Tests that `train --elastic` keeps the bits: its ranks are killed, stopped and joined at random. Writes
bench/results/elastic.json.

    elastic.py [RUNS] [--first-seed S]     RUNS: 100

Each run trains a small CNN on a few images with `--shards 4 --elastic 1:4`. It has its own seed, which is printed and decides the
events: one or two ranks at once are killed, asked to leave (SIGTERM) or stopped (for good, until they are excluded, or for a
moment), and ranks join. One of the first ranks is never disturbed, because the state would be lost with the last of them. Then
weights and buffers, losses and metrics of every epoch must be those of the undisturbed run. The program itself checks that each
epoch used each image once. Nothing may hang, and no process and no shared memory may be left. The time from an event to the end
of the next step is what a user would lose.
"""

import hashlib
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import results

sys.path.insert(0, str(results.ROOT / "tests/program"))
sys.argv, arguments = [sys.argv[0], str(results.RINGGRAD)], sys.argv[1:]  # program_case takes the program from there
from program_case import write_tiny

EPOCHS, MOST_RANKS, TIMEOUT, LIMIT = 60, 4, 2.0, 120
WORDS = ["train", "--batch", "12", "--epochs", EPOCHS, "--shards", "4", "--no-report", "--json"]
# The kinds of training and of transport; the seed chooses among them.
ARITHMETIC = [[], ["--sync-bn", "--optimizer", "adamw", "--dtype", "bf16"]]
TRANSPORTS = ["auto", "tcp"]
STEP_DONE = re.compile(r"generation (\d+): step (\d+) is done")


class Failed(Exception):
    """An invariant does not hold."""


class Run:
    def __init__(self, directory, *words):
        self.directory, self.mark = directory, f"RINGGRAD_ELASTIC={directory}-{time.monotonic_ns()}"
        name, value = self.mark.split("=")
        environment = {**os.environ, "RINGGRAD_DATA_DIR": str(directory), "RINGGRAD_TIMEOUT": str(TIMEOUT), "RINGGRAD_THREADS": "1",
                       name: value}
        self.out = directory / "run"
        self.job = subprocess.Popen([str(word) for word in [results.RINGGRAD, *WORDS, "--out", self.out, *words]], text=True,
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        self.said, self.lines, self.steps_done = "", [], []  # steps_done has pairs (time, generation)
        self.readers = [threading.Thread(target=self.listen), threading.Thread(target=self.take_result)]
        for reader in self.readers:
            reader.start()

    def listen(self):
        for line in self.job.stderr:
            self.lines.append(line)
            if found := STEP_DONE.search(line):
                self.steps_done.append((time.monotonic(), int(found[1])))

    def take_result(self):
        self.said = self.job.stdout.read()

    def processes(self):
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (entry / "environ").read_bytes().split(b"\0") and ") Z " not in (entry / "stat").read_text():
                    found.append(int(entry.name))
            except OSError:  # it has ended
                pass
        return found

    def ranks(self):
        try:
            return [int(pid) for pid in Path(f"/proc/{self.job.pid}/task/{self.job.pid}/children").read_text().split()]
        except OSError:
            return []

    def epochs(self):
        path = self.out / "metrics.jsonl"
        return path.read_text().count("\n") if path.exists() else 0

    def bits(self):
        """Everything that the run computed."""
        try:
            self.job.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            raise Failed(f"hangs: {LIMIT} s have passed") from None
        for reader in self.readers:
            reader.join()
        if self.job.returncode != 0:
            raise Failed(f"exit {self.job.returncode}\n{''.join(self.lines)}")
        until = time.monotonic() + 5
        while (left := self.processes()) and time.monotonic() < until:
            time.sleep(0.01)
        if left or list(Path("/dev/shm").glob("*ringgrad*")):
            raise Failed(f"processes {left} are left, or memory in /dev/shm")
        epochs = [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()]
        kept = [[e["epoch"], e["step"], e["loss"], e["test_loss"], e["test_accuracy"], e["parameter_hash"]] for e in epochs]
        return json.loads(self.said)["parameters_sha256"], kept

    def end(self):
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        self.job.wait()


def send(pid, what):
    try:
        os.kill(pid, what)
    except ProcessLookupError:  # it has ended before
        pass


def disturb(run, dice):
    """Causes one event after the other until the run ends. Returns [what, seconds to the end of the next step]."""
    times, stopped = [], set()
    while run.job.poll() is None and run.epochs() < 1:
        time.sleep(0.002)
    left_alone = dice.choice(run.ranks() or [0])
    for _ in range(dice.randrange(2, 7)):
        time.sleep(dice.uniform(0.02, 0.4))
        ranks = [pid for pid in run.ranks() if pid not in stopped and pid != left_alone]
        if run.job.poll() is not None:
            break
        what = dice.choice(["kill", "kill", "kill two", "leave", "stop", "pause", "join"]) if ranks else "join"
        victims = dice.sample(ranks, min(len(ranks), 2 if what == "kill two" else 1)) if what != "join" else []
        since = time.monotonic()
        if what == "join":
            run.job.send_signal(signal.SIGUSR1)
        for pid in victims:
            send(pid, {"leave": signal.SIGTERM, "stop": signal.SIGSTOP, "pause": signal.SIGSTOP}.get(what, signal.SIGKILL))
        if what == "pause":
            time.sleep(dice.uniform(0, 2 * TIMEOUT))
            for pid in victims:
                send(pid, signal.SIGCONT)
            continue
        if what == "stop":
            stopped.update(victims)
        if what == "join":
            continue
        deadline = time.monotonic() + 4 * TIMEOUT  # the event was after the last step, or all remaining ranks end
        while run.job.poll() is None and time.monotonic() < deadline:
            if done := next((when for when, _ in list(run.steps_done) if when > since), None):
                times.append([what, done - since])
                break
            time.sleep(0.001)
        for pid in [pid for pid in stopped if dice.random() < 0.5]:
            send(pid, signal.SIGCONT)  # it learns that it was excluded
    return times


def main():
    words = arguments
    first = int(words.pop(words.index("--first-seed") + 1)) if "--first-seed" in words else 1
    words = [word for word in words if word != "--first-seed"]
    if len(words) > 1 or any(not word.isdigit() for word in words):
        sys.exit(__doc__)
    count, times, failures = int(words[0]) if words else 100, [], []
    with tempfile.TemporaryDirectory() as scratch:
        def run_in(name, *words):
            directory = Path(scratch) / name
            write_tiny(directory / "digits", train=57)
            return Run(directory, *words)

        expected = [run_in(f"undisturbed{i}", "--parallel", "none", *words).bits() for i, words in enumerate(ARITHMETIC)]
        for seed in range(first, first + count):
            dice = random.Random(seed)
            kind = seed % len(ARITHMETIC)
            run = run_in(str(seed), "--elastic", f"1:{MOST_RANKS}", "--ranks", dice.randrange(2, MOST_RANKS + 1),
                         "--transport", dice.choice(TRANSPORTS), *ARITHMETIC[kind])
            try:
                events = disturb(run, dice)
                if run.bits() != expected[kind]:
                    raise Failed("other bits than the undisturbed run")
                times += events
                generations = max([generation for _, generation in run.steps_done], default=1)
                print(f"seed {seed}: {generations} generations, {[f'{what} {seconds:.3f} s' for what, seconds in events]}", flush=True)
            except Failed as failure:
                failures.append(seed)
                print(f"seed {seed}: {failure}\n{''.join(run.lines)}", flush=True)
            finally:
                run.end()
    table = []
    for name, kinds in (("killed", ["kill", "kill two"]), ("left", ["leave"]), (f"stopped, timeout {TIMEOUT:.0f} s", ["stop"])):
        if of_these := [seconds for what, seconds in times if what in kinds]:
            table.append([name, str(len(of_these)), f"{statistics.median(of_these):.3f} s", f"{max(of_these):.3f} s"])
    print(table)
    if failures:
        sys.exit(f"{len(failures)} of {count} runs failed: seeds {failures}")
    digest = hashlib.sha256(json.dumps(expected).encode()).hexdigest()[:16]
    results.save("elastic", f"{count} runs of `train --elastic 1:4 --shards 4` with random kills, stops and joins: all came to the bits of the "
                 f"undisturbed runs ({digest}…)", ["a rank was", "events", "to the end of the next step: median", "worst"], table,
                 note=f"seeds {first} to {first + count - 1}; 0 hangs, 0 processes and 0 shared memory left")


if __name__ == "__main__":
    main()
