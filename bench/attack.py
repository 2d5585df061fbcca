#!/usr/bin/env python3
"""Attacks the program with each kind of tests/attack/ for some time, and counts failures. Writes bench/results/attack.json.

    attack.py [SECONDS]     for each kind (default 600)
"""

import json
import subprocess
import sys

import results

ATTACK = results.ROOT / "tests" / "attack"
WHAT = {
    "ranks": "ranks and launchers killed, stopped, starved, interrupted at any moment",
    "files": "damaged checkpoints, weights and config.json",
    "data": "damaged and hostile IDX, CIFAR and image files",
    "words": "random command lines",
    "limits": "too little memory, too few descriptors, too small files",
    "ports": "strangers at the port where ranks meet",
    "wires": "some 250 connections cut, or with a flipped bit, each",
}


def attacked(kind, seconds):
    done = subprocess.run([sys.executable, ATTACK / "attack.py", results.RINGGRAD, kind, seconds], stdout=subprocess.PIPE,
                          text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    if len(sys.argv) > 2 or sys.argv[1:] and not sys.argv[1].isdigit():
        sys.exit(__doc__)
    seconds = sys.argv[1] if len(sys.argv) > 1 else "600"
    rows = []
    for kind, what in WHAT.items():
        found = results.once("attack", f"{kind}-{seconds}", lambda: attacked(kind, seconds))
        rows.append([what, f"{found['trials']:,}", str(found["failures"]), f"{found['worst_seconds']:.1f}"])
        print(rows[-1], file=sys.stderr)
    results.save("attack", "Attacks on the program", ["", "trials", "failures", "longest trial, s"], rows, note=
                 f"Each kind for {seconds} s. A trial fails if the program hangs or crashes, names a wrong "
                 "culprit, leaves a process, shared memory, a damaged checkpoint or an unfinished file, or continues with "
                 "other bits.")


if __name__ == "__main__":
    main()
