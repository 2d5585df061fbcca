#!/usr/bin/env python3
"""Measures records: `ringgrad train --preset speedrun` with many seeds, and the same recipe in PyTorch, in turn. Writes
bench/results/speedrun_DATA.json.

    speedrun.py PYTHON DATA_DIR mnist|mnist_994|cifar10 [RUNS [PEER_RUNS [TABLE]]]     PYTHON can import torch; default 30
                and 5 runs, and speedrun_ with the record's name; RUNS 3,5: for float32 and for bfloat16

bfloat16 is left out if the processor multiplies it as float32.

A run is a new process, and seconds count from its start, including loading and testing. No choice was made on the test
images: the unpublished parts of a recipe were chosen on training images held out. Prints mean, spread, and how probable such
accuracies would be if the true mean were just below the mark (Student's t, one-sided). If that is small, the mark is reached.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

import results
import train_pytorch

PEER = results.ROOT / "bench" / "peers" / "speedrun_pytorch.py"
# Data, its folder, epochs (0: the recipe's own), mark, and the table's remark.
RECORDS = {
    "mnist": ("mnist", "mnist", 0, 0.99, "Mark: 99 %."),
    "mnist_994": ("mnist", "mnist", 2, 0.994, "Mark: 99.4 %, in two epochs, the fewest that reached it on 10,000 training "
                  "images held out."),
    "cifar10": ("cifar10", "cifar-10-batches-bin", 0, 0.907, "Mark: airbench's 94 % on the original images corresponds to "
                "90.7 % on images stored as JPEG of quality 75 (PyTorch, the same recipe). The accuracy shows which these are."),
}


def ringgrad(record, directory, dtype, seed):
    data, _, epochs, _, _ = RECORDS[record]
    with tempfile.TemporaryDirectory() as scratch:
        command = [str(results.RINGGRAD), "train", "--preset", "speedrun", "--data", data, "--data-dir", directory,
                   "--dtype", dtype, "--seed", str(seed), "--out", f"{scratch}/run", "--json",
                   *(["--epochs", str(epochs)] if epochs else [])]
        begin = time.perf_counter()
        document = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        return time.perf_counter() - begin, document["test_accuracy"]


def pytorch(python, record, directory, seed):
    data, folder, epochs, _, _ = RECORDS[record]
    command = [python, str(PEER), data, f"{directory}/{folder}", "--seed", str(seed), "--epochs", str(epochs)]
    begin = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | train_pytorch.HEAP)
    return time.perf_counter() - begin, json.loads(done.stdout)["test_accuracy"]


def student_tail(t, freedom):
    """P(T > t): the integral of the density, by Simpson's rule after x = t + u / (1 - u)."""
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)

    def density(u):
        x = t + u / (1 - u)
        return scale * (1 + x * x / freedom) ** (-(freedom + 1) / 2) / (1 - u) ** 2

    n = 2000
    h = (1 - 1e-9) / n
    return h / 3 * sum((1 if i in (0, n) else 4 if i % 2 else 2) * density(i * h) for i in range(n + 1))


def row(name, runs, mark):
    seconds, accuracies = [[run[i] for run in runs] for i in (0, 1)]
    mean = statistics.mean(accuracies)
    spread = statistics.stdev(accuracies) if len(runs) > 1 else 0
    p = student_tail((mean - mark) / (spread / math.sqrt(len(runs))), len(runs) - 1) if spread else math.nan
    if len(runs) == 1:
        return [name, "1", f"{100 * mean:.2f} %", "–", f"{seconds[0]:.2f}"]
    return [name, str(len(runs)), f"{100 * mean:.2f} ± {100 * spread:.2f} %", f"{p:.2g}" if spread else "–",
            f"{statistics.median(seconds):.2f} ({min(seconds):.2f}–{max(seconds):.2f})"]


def main():
    if len(sys.argv) < 4 or sys.argv[3] not in RECORDS:
        sys.exit(__doc__)
    python, directory, record = sys.argv[1:4]
    counts, peers = (x or d for x, d in zip((sys.argv[4:] + ["", ""])[:2], ("30", "5")))
    table = sys.argv[6] if len(sys.argv) > 6 else f"speedrun_{record}"
    dtypes = ["fp32"] if results.ringgrad("doctor")["bfloat16_products"].startswith("as float32") else ["fp32", "bf16"]
    runs_of = dict(zip(dtypes, [int(count) for count in counts.split(",")] * 2))
    data, _, _, mark, note = RECORDS[record]
    runs = {**{f"ringgrad, {dtype}": [] for dtype in dtypes}, "PyTorch, fp32": []}
    for seed in range(1, max(runs_of.values()) + 1):
        for dtype, count in runs_of.items():
            if seed <= count:
                runs[f"ringgrad, {dtype}"].append(
                    results.once(table, f"{dtype}-{seed}", lambda: ringgrad(record, directory, dtype, seed)))
        if seed <= int(peers):
            runs["PyTorch, fp32"].append(
                results.once(table, f"pytorch-{seed}", lambda: pytorch(python, record, directory, seed)))
        print(seed, {name: values[-1] for name, values in runs.items() if values}, file=sys.stderr)
    version = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    results.save(table, f"{data}: `train --preset speedrun`, from the start of the process",
                 ["", "runs", "test accuracy", "p", "seconds"],
                 [row(name, values, mark) for name, values in runs.items() if values],
                 {"PyTorch": version.stdout.strip().split("+")[0]},
                 f"{note} p: the probability of these accuracies if the true mean were at the mark.", runs)


if __name__ == "__main__":
    main()
