#!/usr/bin/env python3
"""Measures what dividing the optimizer's steps (ZeRO) costs: the throughput of both stages, as a part of DDP's, on two ranks
with AdamW. Writes bench/results/zero.json.

    zero.py [--rounds N] [MODEL…]     by default 15 rounds of cnn, resnet20 and resnet18; rows that are named are not saved

A round takes some steps by each way, in turn, in the same processes, and every second round turns the order around. A cell is
the median of the rounds' ratios, with the quartiles. "Waits" is ZeRO-1 with all parameters gathered when a step ends.
"""

import argparse
import json
import statistics
import subprocess
import sys

import results

STEP = results.ROOT / "build" / "release" / "zero_step"  # built where RINGGRAD_BENCH is ON
MODELS = {"cnn": (50, 10), "resnet20": (64, 2), "resnet18": (32, 1)}  # images a rank, and the steps of a way in a round
WAYS = ["ZeRO-1", "ZeRO-1 waits", "ZeRO-2"]


def measure(model, transport, rounds):
    batch, steps = MODELS[model]
    command = [STEP, model, 2, transport, batch, steps, rounds]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True, timeout=3000)
    document = json.loads(done.stdout.splitlines()[-1])
    if len(set(document["bits"].values())) > 1:
        sys.exit(f"zero.py: {model}, {transport}: not all ways end with the same bits")
    return document["step_ms"]


def cell(times, way):
    low, middle, high = statistics.quantiles([100 * plain / own for plain, own in zip(times["DDP"], times[way])], n=4)
    return f"{middle:.1f} % ({low:.1f}–{high:.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    arguments = parser.parse_intermixed_args()
    rows = []
    for model in arguments.models or MODELS:
        for transport in ("shm", "tcp"):
            times = results.once("zero", f"{model}-{transport}-{arguments.rounds}",
                                 lambda: measure(model, transport, arguments.rounds))
            rows.append([f"{model}, {MODELS[model][0]} images a rank, {transport}",
                         f"{statistics.median(times['DDP']):,.1f} ms", *(cell(times, way) for way in WAYS)])
            print(" | ".join(rows[-1]), flush=True)
    if arguments.models:
        return
    results.save("zero", "Throughput of ZeRO as a part of DDP's, two ranks, AdamW",
                 ["", "DDP, a step", "ZeRO-1", "ZeRO-1, gathered at the end", "ZeRO-2"], rows,
                 note=f"The median of {arguments.rounds} rounds in turn, in the same processes, and the quartiles. "
                      "All ways end with the same bits.")


if __name__ == "__main__":
    main()
