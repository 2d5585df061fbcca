#!/usr/bin/env python3
"""Trains the default recipes and writes bench/results/accuracy.json.

    accuracy.py DATA_DIR      the folder in which `ringgrad data list --data-dir DATA_DIR` finds MNIST and CIFAR-10
"""

import sys
import tempfile
from pathlib import Path

import results

RUNS = [  # data, model, epochs
    ("digits", "cnn", 4),
    ("mnist", "cnn", 3),
    ("cifar10", "resnet20", 2),
]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for data, model, epochs in RUNS:
            run = results.ringgrad("train", "--data", data, "--model", model, "--epochs", epochs,
                                   "--data-dir", sys.argv[1], "--out", str(Path(scratch) / data))
            rows.append([f"{data}, {model}, {epochs} epochs", f"{100 * run['test_accuracy']:.2f} %",
                         f"{run['seconds']:.1f} s", f"{run['images_per_second']:,.0f}"])
    results.save("accuracy", "Training from nothing on the CPU, default recipes but for the epochs, seed 1",
                 ["", "test accuracy", "training", "images/s"], rows)


if __name__ == "__main__":
    main()
