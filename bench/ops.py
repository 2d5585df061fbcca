#!/usr/bin/env python3
"""Measures the cost of the tape: `ringgrad bench ops` and libtorch, in turn. Writes bench/results/ops.json.

    ops.py PYTHON [ROUNDS]      PYTHON can import torch, whose libtorch is measured
"""

import json
import statistics
import subprocess
import sys

import results

PEER = results.ROOT / "bench" / "peers" / "tape_libtorch.sh"
KEYS = [("forward, no tape", "add_untracked_ns"), ("forward", "add_forward_ns"),
        ("forward + backward", "add_forward_backward_ns")]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    python, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(results.ringgrad("bench", "ops"))
        theirs.append(json.loads(subprocess.run([PEER, python], stdout=subprocess.PIPE, text=True, check=True).stdout))
    rows = []
    for name, key in KEYS:
        a, b = [[run[key] for run in runs] for runs in (ours, theirs)]
        ratios = [y / x for x, y in zip(a, b)]
        rows.append([name, f"{statistics.median(a):,.0f}", f"{statistics.median(b):,.0f}",
                     f"{statistics.median(ratios):.1f}× ({min(ratios):.1f}–{max(ratios):.1f})"])
    version = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    results.save("ops", "Nanoseconds per addition of one float, a chain of 1,000, one thread",
                 ["", "ringgrad", "libtorch (C++)", "faster"], rows, {"libtorch": version.stdout.strip().split("+")[0]})


if __name__ == "__main__":
    main()
