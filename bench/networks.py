#!/usr/bin/env python3
"""Training steps of networks that users bring, on the CPU, beside PyTorch's best of eager and channels_last, in turn, to
bench/results/networks.json.

    networks.py PYTHON [ROUNDS [NAME…]]      PYTHON can import torch; default 3 rounds, of all networks

One thread, in processor time, which other programs of a shared machine do not lengthen; RINGGRAD_THREADS=2 in the
environment: two, in wall time.
"""

import json
import os
import statistics
import subprocess
import sys

import results

OURS = results.ROOT / "build" / "release" / "networks"  # built where RINGGRAD_BENCH is ON
PEER = results.ROOT / "bench" / "peers" / "networks_pytorch.py"
DTYPES = ("float32", "bfloat16")
NAMES = ("MobileNetV2", "ShuffleNetV2", "ResNeXt-20", "DenseNet-40", "SE-ResNet-20", "ViT-tiny", "LSTM")
SECONDS = "2"


def measure(command, environment):
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout)


def row(python, count, name, dtype, environment):
    """The best of PyTorch's two in each round beside ours."""
    arguments = [name, dtype, SECONDS]
    rounds = []
    for _ in range(count):
        ours = measure([OURS, *arguments], environment)
        theirs = [measure([python, PEER, *arguments], environment)]
        if name != "LSTM":  # it has no images
            theirs.append(measure([python, PEER, *arguments, "channels_last"], environment))
        rounds.append((ours, min(theirs, key=lambda run: run["step_ms"])))

    def both(key, form):
        return " / ".join(form.format(statistics.median(run[i][key] for run in rounds)) for i in (0, 1))

    ratios = [theirs["step_ms"] / ours["step_ms"] for ours, theirs in rounds]
    return [f"{name}, {dtype}", both("step_ms", "{:,.0f}"),
            f"{statistics.median(ratios):.2f}× ({min(ratios):.2f}–{max(ratios):.2f})",
            both("peak_mb", "{:,.0f}"), both("first_s", "{:.1f}")]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    python, count, names = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3, sys.argv[3:] or NAMES
    environment = {"RINGGRAD_THREADS": "1"} | os.environ
    threads = environment["RINGGRAD_THREADS"]
    rows = [results.once("networks", f"{name}-{dtype}-{threads}", lambda: row(python, count, name, dtype, environment))
            for dtype in DTYPES for name in names]
    version = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    results.save("networks", f"Training steps on the CPU, batch 64, threads: {threads}, ringgrad / PyTorch",
                 ["", "milliseconds", "faster", "peak memory, MB", "start to first step, s"], rows,
                 {"PyTorch": version.stdout.strip().split("+")[0]},
                 "Images of 32 × 32, sequences of 28 × 28 numbers; forward, cross entropy, backward, SGD with momentum. "
                 "PyTorch: the faster of eager and channels_last.")


if __name__ == "__main__":
    main()
