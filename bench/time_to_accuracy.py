#!/usr/bin/env python3
"""Measures how long MNIST takes to reach 99 %: seconds from the start of the process to the end of the first evaluation on
the 10,000 test images that reaches it, for `ringgrad train` and PyTorch in turn. Writes
bench/results/time_to_accuracy.json.

    time_to_accuracy.py PYTHON DATA_DIR [ROUNDS]     PYTHON can import torch; DATA_DIR/mnist holds the four files,
                                                     unpacked; ROUNDS (default 5)

Run it on an idle machine. Both train the same network, with the best recipe found (RECIPES). A run that ends below
99 % is started again with another seed, and its time counts. PyTorch's side is bench/peers/mnist_pytorch.py.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import results
import train_pytorch

TARGET = 0.99
ATTEMPTS = 5
EPOCH = re.compile(r"^epoch=(\d+) .*test_acc=(\S+)")

# The test accuracy after this epoch was 99.11 to 99.21 % for seeds 1 to 6, and in bfloat16 99.06 to
# 99.24 % for three seeds. Other recipes were worse, with two or three seeds each: batch 100 and lr
# 0.15 gave 99.06 to 99.09 %; batch 128 and lr 0.2 gave 99.01 to 99.04 %; batch 256 and lr 0.4 gave
# 98.61 to 98.91 %; this one without smoothing gave 98.89 to 99.07 %.
RECIPE = ["--epochs", "1", "--batch", "64", "--lr", "0.1", "--label-smoothing", "0.1"]
RECIPES = {  # contestant -> its options
    "ringgrad, fp32": [*RECIPE, "--parallel", "none"],
    "ringgrad, fp32, two ranks": [*RECIPE, "--ranks", "2"],
    "ringgrad, bf16": [*RECIPE, "--parallel", "none", "--dtype", "bf16"],
    "PyTorch, fp32": RECIPE,
    "PyTorch, bf16": [*RECIPE, "--dtype", "bf16"],
}


def start(name, python, directory, scratch, seed):
    if name.startswith("ringgrad"):
        command = [results.RINGGRAD, "train", "--data", "mnist", "--model", "cnn", "--data-dir", directory, "--quiet",
                   "--out", Path(scratch) / "run"]
        environment = os.environ
    else:
        command = [python, results.ROOT / "bench" / "peers" / "mnist_pytorch.py", Path(directory) / "mnist"]
        environment = os.environ | train_pytorch.HEAP
    return subprocess.Popen([*command, *RECIPES[name], "--seed", str(seed)], env=environment, stdout=subprocess.PIPE,
                            text=True)


def until_reached(name, python, directory, first_seed):
    """(seconds, accuracy): the sum over the attempts."""
    spent = 0.0
    for attempt in range(ATTEMPTS):
        with tempfile.TemporaryDirectory() as scratch:
            begin = time.perf_counter()
            with start(name, python, directory, scratch, first_seed + attempt) as process:
                reached = None
                for line in process.stdout:
                    now, epoch = time.perf_counter() - begin, EPOCH.match(line)
                    if epoch and reached is None and float(epoch[2]) >= TARGET:
                        reached = spent + now, float(epoch[2])
            if process.returncode != 0:
                sys.exit(f"time_to_accuracy: {name} failed with status {process.returncode}")
        if reached:
            return reached
        spent += time.perf_counter() - begin
    sys.exit(f"time_to_accuracy: {name} did not reach {TARGET:.0%} in {ATTEMPTS} runs; its recipe is no good")


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    python, directory = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    runs = {name: [] for name in RECIPES}
    for number in range(rounds):
        for name in RECIPES:
            runs[name].append(until_reached(name, python, directory, number * ATTEMPTS + 1))
            print(f"round {number + 1}: {name}: {runs[name][-1][0]:.2f} s, {runs[name][-1][1]:.2%}", file=sys.stderr)
    seconds = {name: [second for second, _ in values] for name, values in runs.items()}
    ours, theirs = [min((n for n in RECIPES if n.startswith(side)), key=lambda n: statistics.median(seconds[n]))
                    for side in ("ringgrad", "PyTorch")]
    ratios = [b / a for a, b in zip(seconds[ours], seconds[theirs])]
    rows = [[name, f"`{' '.join(RECIPES[name])}`", f"{statistics.median(seconds[name]):.1f} "
             f"({min(seconds[name]):.1f}–{max(seconds[name]):.1f})",
             f"{100 * min(accuracy for _, accuracy in values):.2f} %"] for name, values in runs.items()]
    version = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    results.save("time_to_accuracy", "MNIST to 99 % from nothing: seconds from the start of the process",
                 ["", "recipe", "seconds", "accuracy, at least"], rows, {"PyTorch": version.stdout.strip().split("+")[0]},
                 f"The best of each: ringgrad is {statistics.median(ratios):.1f}× ({min(ratios):.1f}–{max(ratios):.1f}) as "
                 f"fast, over {rounds} rounds. Same network and schedule; a run that ends below 99 % is started again, and "
                 "its time counts. PyTorch without torch.compile, which compiles for longer than all of this takes.", runs)


if __name__ == "__main__":
    main()
