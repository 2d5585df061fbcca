#!/usr/bin/env python3
"""Measures the part of an epoch in which training waits for batches. Writes bench/results/data_wait.json.

    data_wait.py DATA_DIR [ROUNDS]     the folder with MNIST and CIFAR-10; ROUNDS (default 3), one epoch each
"""

import statistics
import sys
import tempfile
from pathlib import Path

import results

BATCH = 128
RUNS = [("mnist", "cnn"), ("cifar10", "resnet20")]  # data, model


def epoch(directory, data, model):
    with tempfile.TemporaryDirectory() as scratch:
        return results.ringgrad("train", "--data", data, "--model", model, "--batch", BATCH, "--epochs", 1, "--parallel",
                                "none", "--data-dir", directory, "--out", Path(scratch) / "run")


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    directory, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    rows = []
    for data, model in RUNS:
        runs = [epoch(directory, data, model) for _ in range(rounds)]
        waits = [100 * run["waiting_for_data"] for run in runs]
        rows.append([f"{data}, {model}, batch {BATCH}", f"{statistics.median(waits):.2f} % ({min(waits):.2f}–{max(waits):.2f})",
                     f"{statistics.median(run['images_per_second'] for run in runs):,.0f}"])
        print(rows[-1], file=sys.stderr)
    results.save("data_wait", "Waiting for data: one epoch with the default loader, one thread that prepares batches",
                 ["", "of the time", "images/s"], rows, note=
                 f"Median of {rounds} rounds, in brackets their range.")


if __name__ == "__main__":
    main()
