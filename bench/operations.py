#!/usr/bin/env python3
"""Single operations on the CPU beside PyTorch's, in turn, to bench/results/operations.json: whether one of them is slow.

    operations.py PYTHON [ROUNDS]      PYTHON can import torch; default 3 rounds of a minute and a half each
"""

import json
import statistics
import subprocess
import sys

import results

OURS = results.ROOT / "build" / "release" / "operations"  # built where RINGGRAD_BENCH is ON
PEER = results.ROOT / "bench" / "peers" / "operations_pytorch.py"


def ratios(ours, theirs, name, which):
    values = [b[name][which] / a[name][which] for a, b in zip(ours, theirs) if a[name][which]]
    return f"{statistics.median(values):.2f}× ({min(values):.2f}–{max(values):.2f})" if values else "–"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    python, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    ours, theirs = [], []
    for _ in range(rounds):
        for command, to in (([OURS], ours), ([python, PEER], theirs)):
            to.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))
    rows = []
    for name in ours[0]:
        forward, both = (statistics.median(run[name][which] for run in ours) for which in (0, 1))
        rows.append([name, f"{forward:,.0f}", ratios(ours, theirs, name, 0), f"{both:,.0f}", ratios(ours, theirs, name, 1)])
    rows.sort(key=lambda row: float(row[4].split("×")[0]))
    version = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    results.save("operations", "Operations on the CPU, float32, microseconds, and how many times as fast as PyTorch's",
                 ["", "forward", "faster", "with backward", "faster"], rows, {"PyTorch": version.stdout.strip().split("+")[0]},
                 "The shapes are in `bench/operations.cpp`; most are a million numbers.")


if __name__ == "__main__":
    main()
