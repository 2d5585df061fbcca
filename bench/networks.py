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
DTYPES = ("float32", "bfloat16") if results.report.has_bfloat16() else ("float32",)
NAMES = ("VGG-11", "WRN-16-4", "U-Net", "ResNet-18", "AlexNet", "LeNet-5", "SqueezeNet", "DenseNet-40", "ConvMixer-256/8",
         "ResNeXt-20", "SE-ResNet-20", "MLP", "MLP-Mixer", "ResNet-50", "ViT-tiny", "ShuffleNetV2", "MobileNetV2", "LSTM")
WITHOUT_IMAGES = ("LSTM", "MLP")
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
        if name not in WITHOUT_IMAGES:
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
    results.save("networks", f"Training steps of networks that users bring, threads: {threads}, ringgrad / PyTorch",
                 ["", "milliseconds", "faster", "peak memory, MB", "start to first step, s"], rows,
                 {"PyTorch": version.stdout.strip().split("+")[0]},
                 "64 images of 32 × 32; LeNet-5, MLP and LSTM: 64 of 28 × 28; SqueezeNet: 64 of 64 × 64; U-Net and ResNet-50: "
                 "16 of 64 × 64; AlexNet and ResNet-18: 16 of 224 × 224. Forward, cross entropy, backward, SGD with momentum. "
                 "PyTorch: the faster of eager and channels_last.")


if __name__ == "__main__":
    main()
