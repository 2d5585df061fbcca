#!/usr/bin/env python3
"""Measures whether `--shards` costs accuracy: trains the networks of accuracy.py on two ranks, plain and with `--shards 8`,
three seeds each. Writes bench/results/accuracy_shards.json.

    accuracy_shards.py DATA_DIR [NAME…]     the folder in which `ringgrad data list --data-dir DATA_DIR` finds MNIST and
                                            CIFAR-10; NAME: a data set, such as mnist (default: both)
"""

import statistics
import sys
import tempfile
from pathlib import Path

import results

RUNS = [("mnist", "cnn", 1), ("cifar10", "resnet20", 2)]  # data, model, epochs
SEEDS = [1, 2, 3]
WAYS = {"plain": [], "--shards 8": ["--shards", 8]}


def train(data, model, epochs, seed, words, directory):
    with tempfile.TemporaryDirectory() as scratch:
        return results.ringgrad("train", "--data", data, "--model", model, "--epochs", epochs, "--seed", seed, "--ranks", 2,
                                "--data-dir", directory, "--out", str(Path(scratch) / data), *words)["test_accuracy"]


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    directory, names = sys.argv[1], sys.argv[2:]
    rows = []
    for data, model, epochs in [run for run in RUNS if run[0] in names or not names]:
        cells = []
        for words in WAYS.values():
            found = [100 * results.once("accuracy_shards", f"{data}-{len(words)}-{seed}",
                                        lambda: train(data, model, epochs, seed, words, directory)) for seed in SEEDS]
            cells.append(f"{statistics.mean(found):.2f} % ({min(found):.2f}–{max(found):.2f})")
        rows.append([f"{data}, {model}, {epochs} epoch{'s' * (epochs > 1)}", *cells])
    results.save("accuracy_shards", f"Test accuracy on two ranks, {len(SEEDS)} seeds", ["", *WAYS], rows,
                 note="The means, with the lowest and the highest value.")


if __name__ == "__main__":
    main()
