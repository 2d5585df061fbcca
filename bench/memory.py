#!/usr/bin/env python3
"""Measures what recomputation (train --recompute) and ZeRO (train --zero 1) save and cost. Writes bench/results/memory.json.

    memory.py [ROUNDS]     rounds (default 3), in which all variants of a row run in turn

Trains on noise, in a folder of pictures that it makes. Every variant must end with the bits of the plain run, or the script
fails. Memory is that of a rank's tensors at its peak: parameters, gradients, the optimizer's state, activations.
"""

import hashlib
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import results

WAYS = {"plain": [], "recompute": ["--recompute", "blocks"], "zero": ["--zero", "1"],
        "both": ["--recompute", "blocks", "--zero", "1"]}
NETWORKS = [("resnet20", 128), ("resnet18", 64), ("resnet101", 32)]  # model, batch
STEPS = 8


def pictures(folder):
    random.seed(1)
    for part, count in (("train", 256), ("test", 8)):
        for name in ("a", "b"):
            place = folder / part / name
            place.mkdir(parents=True)
            for i in range(count):
                (place / f"{i}.ppm").write_bytes(b"P6 32 32 255\n" + random.randbytes(3 * 32 * 32))


def run(folder, model, batch, ranks, way):
    """Peak megabytes of a rank's tensors, milliseconds of a step, and a hash of the weights."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        parallel = ["--parallel", "none"] if ranks == 1 else ["--ranks", ranks]
        command = [results.RINGGRAD, "train", "--data", folder, "--model", model, "--batch", batch, "--epochs", 2,
                   "--max-steps", STEPS, "--optimizer", "adamw", "--lr", 0.001, *parallel, *way, "-q", "--out", out]
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        rank = json.loads((out / "summary.json").read_text())["ranks"][0]
        weights = hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()
    return rank["tensor_bytes"] / 1e6, sum(rank["step_ms"].values()), weights


def main():
    if len(sys.argv) > 2 or sys.argv[1:] and not sys.argv[1].isdigit():
        sys.exit(__doc__)
    rounds = int(sys.argv[1]) if sys.argv[1:] else 3
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "noise"
        pictures(folder)
        for model, batch in NETWORKS:
            for ranks in (1, 2):
                names = [name for name in WAYS if ranks > 1 or name in ("plain", "recompute")]
                runs = {name: [] for name in names}
                for _ in range(rounds):
                    for name in names:
                        runs[name].append(run(folder, model, batch, ranks, WAYS[name]))
                if len({weights for of_way in runs.values() for _, _, weights in of_way}) > 1:
                    sys.exit(f"memory.py: {model} on {ranks} ranks: not all ways end with the same bits")
                row = [f"{model}, batch {batch}, {ranks} rank{'s' if ranks > 1 else ''}"]
                for name in WAYS:
                    if name not in runs:
                        row.append("–")
                        continue
                    ratios = [own[1] / plain[1] for own, plain in zip(runs[name], runs["plain"])]
                    time = "" if name == "plain" else f", {statistics.median(ratios):.2f}× ({min(ratios):.2f}–{max(ratios):.2f})"
                    row.append(f"{statistics.median(r[0] for r in runs[name]):,.0f} MB{time}")
                rows.append(row)
                print(row, file=sys.stderr)
    results.save("memory", "Memory of a rank's tensors, and a step's time beside the plain run's: AdamW, float32",
                 ["", "plain", "--recompute blocks", "--zero 1", "both"], rows,
                 note=f"Median of {rounds} rounds of {STEPS} steps in turn, in brackets the range. All ways of a row end with the same "
                      "bits.")


if __name__ == "__main__":
    main()
