#!/usr/bin/env python3
"""Training steps of ringgrad and of PyTorch in turn, on the same cores: train_compare.py --help

Run it with the Python that has torch, on an idle machine. For each network and dtype every configuration of
train_pytorch.py runs alone for a moment; then the best three run in turn with `ringgrad bench train`. Up to three
configurations are not tried alone.
Every round runs each contestant once, so that a slow minute of the machine affects all alike. A ratio is taken within a
round, and its spread is that over the rounds. PyTorch stays loaded between rounds; ringgrad is restarted in each. A row
takes about three minutes, and longer the first time, when torch.compile's cache is cold. If it is stopped and started
again, it continues with the next row. Writes bench/results/train_cpu.json.
"""

import argparse
import importlib.metadata
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True

import train_pytorch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import results

WORK = [("resnet18", 64), ("resnet20", 128), ("cnn", 100)]


class Ringgrad:
    def __init__(self, work):
        self.command = [results.RINGGRAD, "bench", "train", *train_pytorch.work_options(work), "--json", "--steps"]
        self.rounds, self.steps = [], 3

    def round(self, seconds):
        done = subprocess.run([*self.command, str(self.steps)], check=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL)
        self.result = json.loads(done.stdout)
        self.rounds.append(self.result["median_ms"])
        self.steps = max(3, math.ceil(seconds * 1e3 / self.result["median_ms"]))


def spread(values):
    return [round(v, 3) for v in (statistics.median(values), min(values), max(values))]


def compare(work, arguments):
    start = time.monotonic()
    tried, names = train_pytorch.chosen(work, arguments.only, arguments.seconds)
    peers = [train_pytorch.Process(work, name) for name in names]
    ours = Ringgrad(work)
    ours.round(arguments.seconds)  # finds out how many steps a round needs
    ours.rounds.clear()
    for _ in range(arguments.rounds):
        for contestant in (ours, *peers):
            contestant.round(arguments.seconds)
    for peer in peers:
        peer.finish()
        tried[peer.name] |= {"failed": peer.error} if peer.error else {"rounds_ms": spread(peer.rounds)}
    peers = [peer for peer in peers if not peer.error]
    if not peers:
        sys.exit(f"train_compare: no configuration of PyTorch trains {work.model} in {work.dtype}: {tried}")
    best = min(peers, key=lambda peer: statistics.median(peer.rounds))
    ratio, low, high = spread([theirs / mine for mine, theirs in zip(ours.rounds, best.rounds)])
    print(f"{work.model} {work.dtype}: {ratio:.2f}× {best.name}, {time.monotonic() - start:.0f} s", file=sys.stderr)
    return {
        "model": work.model,
        "batch": work.batch,
        "dtype": work.dtype,
        "ratio": ratio,
        "ratio_low_high": [low, high],
        "ringgrad_ms": spread(ours.rounds),
        "pytorch_ms": spread(best.rounds),
        "ringgrad_images_per_second": round(work.batch / statistics.median(ours.rounds) * 1e3, 1),
        "pytorch_images_per_second": round(work.batch / statistics.median(best.rounds) * 1e3, 1),
        "pytorch_best": best.name,
        "ringgrad_phases_ms": {name: round(ms, 3) for name, ms in ours.result["phases_ms"].items()},
        "ringgrad_peak_bytes": ours.result["peak_resident_bytes"],
        "pytorch_peak_bytes": best.result["peak_bytes"],
        "ringgrad_tensor_bytes": ours.result["tensor_bytes"],
        "pytorch_increment_bytes": best.result["increment_bytes"],
        "ringgrad_first_step_s": round(ours.result["first_step_ms"] / 1e3, 3),
        "pytorch_first_step_s": best.result["first_step_s"],
        "pytorch_tried": tried,
    }


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=[model for model, _ in WORK], metavar="MODEL")
    parser.add_argument("--dtypes", nargs="*", default=["fp32", "bf16"], metavar="DTYPE")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=1.5, help="of each contestant in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--table", default="train_cpu", metavar="NAME", help="the document in bench/results/")
    parser.add_argument("--only", nargs="*", default=list(train_pytorch.CONFIGURATIONS),
                        choices=list(train_pytorch.CONFIGURATIONS), metavar="CONFIGURATION")
    return parser.parse_args()


def save(rows, version, arguments):
    busy = os.getloadavg()[0] > 2 * os.cpu_count()
    names = {"resnet18": "ResNet-18", "resnet20": "ResNet-20", "cnn": "MNIST CNN"}
    table = [[f"{names[row['model']]}, batch {row['batch']}, {row['dtype']}",
              f"{row['ringgrad_images_per_second']:,.0f}", f"{row['pytorch_images_per_second']:,.0f}",
              f"{row['ratio']:.2f}× ({row['ratio_low_high'][0]:.2f}–{row['ratio_low_high'][1]:.2f})",
              f"{row['ringgrad_peak_bytes'] / 2**20:,.0f} / {row['pytorch_peak_bytes'] / 2**20:,.0f} MiB",
              f"{row['ringgrad_tensor_bytes'] / 2**20:,.0f} / {row['pytorch_increment_bytes'] / 2**20:,.0f} MiB",
              f"{row['ringgrad_first_step_s']:.2f} / {row['pytorch_first_step_s']:.2f} s"] for row in rows]
    results.save(arguments.table, f"Training steps on synthetic data, images per second, {arguments.threads} "
                 f"thread{'s' if arguments.threads > 1 else ''}",
                 ["", "ringgrad", "PyTorch, its best", "faster", "peak memory", "of it no library", "start to first step"], table,
                 {"PyTorch": version.split("+")[0]},
                 f"PyTorch's best of {len(arguments.only)} configurations: all were tried, the best three ran in turn "
                 f"with ringgrad (`bench/results/{arguments.table}.json` has them all). The ratio is taken within a round; in "
                 f"brackets its spread over {arguments.rounds} rounds."
                 + " The machine was busy with other things: both rates are low, the ratio holds." * busy, rows)


def main():
    arguments = parse()
    works = [train_pytorch.Work(model, batch, dtype, arguments.threads)
             for model, batch in WORK if model in arguments.models for dtype in arguments.dtypes]
    rows = [results.once(arguments.table, f"{work.model}-{work.dtype}", lambda: compare(work, arguments)) for work in works]
    save(rows, importlib.metadata.version("torch"), arguments)


if __name__ == "__main__":
    main()
