#!/usr/bin/env python3
"""Trains the default recipes and writes bench/results/accuracy.json; with --shards the same networks plain and with
`--shards 8`, three seeds each, to bench/results/accuracy_shards.json.

    accuracy.py DATA_DIR [--shards [NAME…]]     the folder that `ringgrad data list --data-dir DATA_DIR` sees MNIST and
                                                CIFAR-10 in; NAME: of the data sets, such as mnist; all of them without
"""

import statistics
import sys
import tempfile
from pathlib import Path

import results

RUNS = [  # data, model, epochs
    ("digits", "cnn", 4),
    ("mnist", "cnn", 3),
    ("cifar10", "resnet20", 2),
]


SEEDS = [1, 2, 3]  # of the runs with and without shards
FEWER_EPOCHS = {"mnist": 1}  # where one is enough to compare


def train(data, model, epochs, directory, *words):
    with tempfile.TemporaryDirectory() as scratch:
        return results.ringgrad("train", "--data", data, "--model", model, "--epochs", epochs, "--data-dir", directory,
                                "--out", str(Path(scratch) / data), *words)


def default_recipes(directory):
    rows = []
    for data, model, epochs in RUNS:
        run = train(data, model, epochs, directory)
        rows.append([f"{data}, {model}, {epochs} epochs", f"{100 * run['test_accuracy']:.2f} %", f"{run['seconds']:.1f} s",
                     f"{run['images_per_second']:,.0f}"])
    results.save("accuracy", "Training from nothing on the CPU, default recipes but for the epochs, seed 1",
                 ["", "test accuracy", "training", "images/s"], rows)


def with_shards(directory, names):
    rows = []
    for data, model, usual in [run for run in RUNS if run[0] in names]:
        epochs, cells = FEWER_EPOCHS.get(data, usual), []
        for words in [[], ["--shards", 8]]:
            runs = [results.once("accuracy_shards", f"{data}-{len(words)}-{seed}",
                                 lambda: train(data, model, epochs, directory, "--ranks", 2, "--seed", seed, *words))
                    for seed in SEEDS]
            accuracies = [100 * run["test_accuracy"] for run in runs]
            cells.append(f"{statistics.mean(accuracies):.2f} % ({min(accuracies):.2f}–{max(accuracies):.2f})")
        rows.append([f"{data}, {model}, {epochs} epoch{'s' * (epochs > 1)}", *cells])
    results.save("accuracy_shards", f"Test accuracy on two ranks, plain and with `--shards 8`, seeds {SEEDS[0]} to {SEEDS[-1]}",
                 ["", "plain", "--shards 8"], rows, note="Means, and the least to the most.")


def main():
    words = sys.argv[1:]
    if not words or words[0].startswith("-") or len(words) > 1 and words[1] != "--shards":
        sys.exit(__doc__)
    if len(words) == 1:
        return default_recipes(words[0])
    with_shards(words[0], words[2:] or [data for data, _, _ in RUNS])


if __name__ == "__main__":
    main()
