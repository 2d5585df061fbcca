#!/usr/bin/env python3
"""Measures whether the convolution algorithm costs accuracy: trains with each, in float32 and bfloat16, over three seeds.
Writes bench/results/conv_accuracy.json. A build that multiplies bfloat16 numbers as float32 says little about bfloat16, and
trains only MNIST with both; see conv_error.py.

    conv_accuracy.py DATA_DIR [ROW …]      the folder in which `ringgrad data list --data-dir DATA_DIR` finds MNIST and
                                           CIFAR-10; rows: mnist-fp32, mnist-bf16, cifar10-fp32, cifar10-bf16, by
                                           default all useful ones. bf16 includes its reference, fp32

If it is stopped and started again, it continues where it was. Nothing is timed, so the machine may do other work meanwhile.
"""

import statistics
import sys
import tempfile
from pathlib import Path

import results

BOTH = ["fp32", "bf16"]
ALGORITHMS = ["direct", "winograd", "auto"]
REFERENCE = ("fp32", "direct")  # the sums of the definition
SEEDS = [1, 2, 3]
# Dunnett's two-sided 5 % limit for the other groups against a reference, by the number of dtypes: two or five groups,
# with a common variance of 3 · (3 - 1) or 6 · (3 - 1) degrees of freedom, in standard errors of the difference (Dunnett
# 1964).
LIMIT = {1: 2.86, 2: 2.90}


def accuracy(directory, data, model, dtype, algorithm, seed):
    """Percent of the test images."""
    def train():
        print(f"{data} {dtype} {algorithm}, seed {seed}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as scratch:
            run = results.ringgrad("train", "--data", data, "--model", model, "--epochs", 1, "--dtype", dtype, "--conv",
                                   algorithm, "--seed", seed, "--parallel", "none", "--data-dir", directory,
                                   "--out", Path(scratch) / "run")
        return 100 * run["test_accuracy"]

    return results.once("conv_accuracy", f"{data}-{dtype}-{algorithm}-{seed}", train)


def rows_of(data, model, dtypes, runs):
    """One row per dtype: mean and standard deviation of each algorithm, and the largest distance from the reference."""
    spread = statistics.fmean(statistics.variance(values) for values in runs.values()) ** 0.5  # pooled over all groups
    error = spread * (2 / len(SEEDS)) ** 0.5
    means = {key: statistics.fmean(values) for key, values in runs.items()}
    rows = []
    for dtype in dtypes:
        cells = [f"{means[dtype, a]:.2f} ± {statistics.stdev(runs[dtype, a]):.2f}" for a in ALGORITHMS]
        distances = {a: abs(means[dtype, a] - means[REFERENCE]) / error for a in ALGORITHMS if (dtype, a) != REFERENCE}
        farthest = max(distances, key=distances.get)
        rows.append([f"{data}, {model}, {dtype}", *cells, f"{distances[farthest]:.1f} ({farthest})"])
    return rows, all(abs(mean - means[REFERENCE]) < LIMIT[len(dtypes)] * error for mean in means.values())


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    products = results.ringgrad("doctor")["bfloat16_products"]
    wanted = sys.argv[2:] or ["mnist-bf16", "cifar10-fp32" if products == "as float32" else "cifar10-bf16"]
    networks = {"mnist": "cnn", "cifar10": "resnet20"}
    if unknown := set(wanted) - {f"{data}-{dtype}" for data in networks for dtype in BOTH}:
        sys.exit(f"conv_accuracy: no row {', '.join(sorted(unknown))}\n{__doc__}")
    table, details, agree = [], {}, []
    for data, model in networks.items():
        dtypes = BOTH if f"{data}-bf16" in wanted else ["fp32"] if f"{data}-fp32" in wanted else []
        if not dtypes:
            continue
        runs = {(dtype, algorithm): [accuracy(sys.argv[1], data, model, dtype, algorithm, seed) for seed in SEEDS]
                for dtype in dtypes for algorithm in ALGORITHMS}
        rows, same = rows_of(data, model, dtypes, runs)
        table += rows
        agree.append(f"{data}: {'all agree within noise' if same else 'not all agree within noise'}")
        details[data] = {f"{dtype} {algorithm}": values for (dtype, algorithm), values in runs.items()}
    results.save("conv_accuracy", "Test accuracy (%) after one epoch with each convolution algorithm",
                 ["", *ALGORITHMS, "farthest from fp32 direct, in standard errors"], table, note=
                 f"Mean ± standard deviation over seeds {SEEDS[0]} to {SEEDS[-1]}. Within noise: fewer than 2.9 "
                 "standard errors from direct fp32 (Dunnett's 5 % limit, spread pooled over a data set's rows). "
                 f"{'; '.join(agree)}. bfloat16 numbers are multiplied {products}.", details=details)


if __name__ == "__main__":
    main()
