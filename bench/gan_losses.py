#!/usr/bin/env python3
"""Compares both losses of `ringgrad gan` on MNIST with PyTorch's, epoch by epoch, over several seeds. Writes
bench/results/gan_losses.json.

    gan_losses.py PYTHON DATA_DIR [SEEDS [EPOCHS]]     PYTHON can import torch; DATA_DIR/mnist holds the four files,
                                                       unpacked; SEEDS (default 3), EPOCHS (default 2)

For equal seeds both see the same batches in the same order (peers/gan_pytorch.py makes our permutation). Weights and noise
are drawn separately. A GAN's losses converge to no known value, so their spread over the seeds tells whether they agree.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import results

LOSSES = ["discriminator_loss", "generator_loss"]


def ours(seed, epochs, data):
    with tempfile.TemporaryDirectory() as scratch:
        return results.ringgrad("gan", "--data", "mnist", "--data-dir", data, "--epochs", epochs, "--seed", seed, "--out",
                                str(Path(scratch) / "run"))["epochs"]


def theirs(seed, epochs, data, python):
    script = results.ROOT / "bench" / "peers" / "gan_pytorch.py"
    command = [python, script, Path(data) / "mnist", "--epochs", epochs, "--seed", seed]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def cell(runs, epoch, loss):
    values = [run[epoch][loss] for run in runs]
    return f"{statistics.mean(values):.3f} ({min(values):.3f}–{max(values):.3f})"


def main():
    if len(sys.argv) not in (3, 4, 5) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    python, data = sys.argv[1:3]
    seeds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    epochs = int(sys.argv[4]) if len(sys.argv) > 4 else 2
    runs = {"ringgrad": [], "PyTorch": []}
    for seed in range(1, seeds + 1):
        runs["ringgrad"].append(results.once("gan_losses", f"ours{seed}-{epochs}", lambda: ours(seed, epochs, data)))
        runs["PyTorch"].append(results.once("gan_losses", f"theirs{seed}-{epochs}", lambda: theirs(seed, epochs, data, python)))
    rows = [[f"epoch {epoch + 1}, {who}", *(cell(of, epoch, loss) for loss in LOSSES)]
            for epoch in range(epochs) for who, of in runs.items()]
    results.save("gan_losses", f"Losses of a GAN on MNIST, means of an epoch, over {seeds} seeds (least to most)",
                 ["", "discriminator", "generator"], rows, details=runs,
                 note="With equal seeds both programs take the same batches in the same order. Each draws its own weights and "
                      "noise.")


if __name__ == "__main__":
    main()
