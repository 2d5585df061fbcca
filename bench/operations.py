#!/usr/bin/env python3
"""Compares single operations on the CPU with PyTorch's, in turn, to find slow ones. Also compares large matrix products, with
one thread and with two. Writes bench/results/operations.json and products.json.

    operations.py PYTHON [ROUNDS]      PYTHON can import torch; default 3 rounds of five minutes each
"""

import json
import os
import statistics
import subprocess
import sys

import results

OURS = results.ROOT / "build" / "release" / "operations"  # exists if RINGGRAD_BENCH is ON
PEER = results.ROOT / "bench" / "peers" / "operations_pytorch.py"
DTYPES = ("float32", "bfloat16") if results.report.has_bfloat16() else ("float32",)


def ratios(ours, theirs, name, which):
    values = [b[name][which] / a[name][which] for a, b in zip(ours, theirs)]
    return f"{statistics.median(values):.2f}× ({min(values):.2f}–{max(values):.2f})"


def rounds(python, count, dtype, names=(), threads=None):
    """The output of our program and of PyTorch's, run in turn."""
    environment = os.environ | ({"RINGGRAD_THREADS": str(threads)} if threads else {})
    runs = [[json.loads(subprocess.run([*command, dtype, *names], stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout)
             for command in ([OURS], [python, PEER])] for _ in range(count)]
    return [ours for ours, _ in runs], [theirs for _, theirs in runs]


def operations(python, count, versions):
    measured = {dtype: rounds(python, count, dtype) for dtype in DTYPES}
    rows = []
    for name in measured[DTYPES[0]][0][0]:
        row = [name]
        for ours, theirs in measured.values():
            for which in (0, 1):
                row += [f"{statistics.median(run[name][which] for run in ours):,.0f}", ratios(ours, theirs, name, which)]
        rows.append(row)
    rows.sort(key=lambda row: float(row[4].split("×")[0]))
    results.save("operations", "Operations on the CPU, microseconds, and how many times as fast as PyTorch's",
                 ["", *(column for dtype in DTYPES for column in (f"{dtype} forward", "faster", "with backward", "faster"))],
                 rows, versions, "The shapes are in `bench/operations.cpp`; most are a million numbers.")


def products(python, count, versions):
    table, sizes = [], (1024, 2048, 4096)
    for dtype in DTYPES:
        measured = [rounds(python, count, dtype, [f"matmul {n}" for n in sizes], threads) for threads in (1, 2)]
        for n in sizes:
            row = [f"{n} × {n}, {dtype}"]
            for ours, theirs in measured:
                rates = [2e-3 * n**3 / statistics.median(run[f"matmul {n}"][0] for run in runs) for runs in (ours, theirs)]
                row += [f"{rates[0]:.0f} / {rates[1]:.0f}", ratios(ours, theirs, f"matmul {n}", 0)]
            table.append(row)
    results.save("products", "Matrix products, float32 or bfloat16, GFLOP/s: ringgrad / PyTorch (MKL, oneDNN)",
                 ["", "one thread", "faster", "two threads", "faster"], table, versions)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    python, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    version = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    versions = {"PyTorch": version.stdout.strip().split("+")[0]}
    products(python, count, versions)
    operations(python, count, versions)


if __name__ == "__main__":
    main()
