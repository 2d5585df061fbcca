#!/usr/bin/env python3
"""Training steps of ringgrad and of PyTorch in turn, on the same cores: train_compare.py --help

Every round runs each contestant once, so that a slow minute of the machine hits them alike; a ratio is taken within a
round, and its spread is that over the rounds. PyTorch stays loaded (its rounds are asked for one at a time, see
train_pytorch.py); ringgrad starts anew in each round. Writes bench/results/train_cpu.json.
"""

import argparse
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True

import train_pytorch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import results

WORK = [("resnet18", 64), ("resnet20", 128), ("cnn", 100)]


class PyTorch:
    """One configuration in a process of its own."""

    def __init__(self, work, name, arguments):
        command = [sys.executable, ROOT / "bench/peers/train_pytorch.py", *work_options(work, arguments), "--one", name]
        environment = os.environ | train_pytorch.CONFIGURATIONS[name][3] | {"OMP_NUM_THREADS": str(arguments.threads)}
        self.name, self.rounds = name, []
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        self.result = json.loads(self.process.stdout.readline() or "{}")

    def round(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        self.rounds.append(statistics.median(answer["seconds"]) * 1e3)
        self.result["peak_bytes"] = answer["peak_mib"] << 20

    def finish(self):
        self.process.stdin.close()
        self.process.wait()


class Ringgrad:
    def __init__(self, work, arguments):
        self.command = [results.RINGGRAD, "bench", "train", *work_options(work, arguments), "--json"]
        self.rounds, self.result = [], {}

    def round(self):
        done = subprocess.run(self.command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.result = json.loads(done.stdout)
        self.rounds.append(self.result["median_ms"])


def work_options(work, arguments):
    model, batch, dtype = work
    return ["--model", model, "--batch", str(batch), "--dtype", dtype, "--threads", str(arguments.threads),
            "--steps", str(arguments.steps * (1 if model == "resnet18" else 4 if model == "resnet20" else 20))]


def spread(values):
    return [round(v, 3) for v in (statistics.median(values), min(values), max(values))]


def compare(work, arguments):
    model, batch, dtype = work
    peers = [PyTorch(work, name, arguments) for name in arguments.only]
    ours = Ringgrad(work, arguments)
    for number in range(arguments.rounds):
        for contestant in (ours, *peers):
            contestant.round()
        print(f"{model} {dtype}: round {number + 1} of {arguments.rounds}", file=sys.stderr)
    for peer in peers:
        peer.finish()
    best = min(peers, key=lambda peer: statistics.median(peer.rounds))
    ratio, low, high = spread([theirs / mine for mine, theirs in zip(ours.rounds, best.rounds)])
    return {
        "model": model,
        "batch": batch,
        "dtype": dtype,
        "ratio": ratio,
        "ratio_low_high": [low, high],
        "ringgrad_ms": spread(ours.rounds),
        "pytorch_ms": spread(best.rounds),
        "ringgrad_images_per_second": round(batch / statistics.median(ours.rounds) * 1e3, 1),
        "pytorch_images_per_second": round(batch / statistics.median(best.rounds) * 1e3, 1),
        "pytorch_best": best.name,
        "ringgrad_phases_ms": {name: round(ms, 3) for name, ms in ours.result["phases_ms"].items()},
        "ringgrad_peak_bytes": ours.result["peak_resident_bytes"],
        "pytorch_peak_bytes": best.result["peak_bytes"],
        "ringgrad_first_step_s": round(ours.result["first_step_ms"] / 1e3, 3),
        "pytorch_first_step_s": best.result["first_step_s"],
        "pytorch_all_ms": {peer.name: spread(peer.rounds) for peer in peers},
    }


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=[model for model, _ in WORK], metavar="MODEL")
    parser.add_argument("--dtypes", nargs="*", default=["fp32", "bf16"], metavar="DTYPE")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--steps", type=int, default=5, help="of resnet18 in a round; smaller networks do more")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="*", default=list(train_pytorch.CONFIGURATIONS), metavar="CONFIGURATION")
    return parser.parse_args()


def save(rows, version, arguments):
    busy = os.getloadavg()[0] > 2 * os.cpu_count()
    names = {"resnet18": "ResNet-18", "resnet20": "ResNet-20", "cnn": "MNIST CNN"}
    table = [[f"{names[row['model']]}, batch {row['batch']}, {row['dtype']}",
              f"{row['ringgrad_images_per_second']:,.0f}", f"{row['pytorch_images_per_second']:,.0f}",
              f"{row['ratio']:.2f}× ({row['ratio_low_high'][0]:.2f}–{row['ratio_low_high'][1]:.2f})",
              f"{row['ringgrad_peak_bytes'] / 2**20:,.0f} / {row['pytorch_peak_bytes'] / 2**20:,.0f} MiB"] for row in rows]
    results.save("train_cpu", f"Training steps on synthetic data, images per second, {arguments.threads} "
                 f"thread{'s' if arguments.threads > 1 else ''}",
                 ["", "ringgrad", "PyTorch, its best", "faster", "peak memory"], table,
                 {"PyTorch": version.split("+")[0]},
                 f"PyTorch's best of {', '.join(rows[0]['pytorch_all_ms'])}; the ratio within a "
                 f"round, and its spread over {arguments.rounds} rounds."
                 + " The machine was busy with other things: both rates are low, the ratio holds." * busy, rows)


def main():
    arguments = parse()
    rows = [compare((model, batch, dtype), arguments)
            for model, batch in WORK if model in arguments.models for dtype in arguments.dtypes]
    save(rows, importlib.metadata.version("torch"), arguments)


if __name__ == "__main__":
    main()
