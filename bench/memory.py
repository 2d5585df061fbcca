#!/usr/bin/env python3
"""Measures what recomputation and ZeRO save and cost, beside PyTorch's. Writes bench/results/memory.json.

    memory.py PYTHON [--rounds N] [--batch N] [--steps N] [--no-times] [--alone] [ROW…]     PYTHON can import torch

A row is NETWORK-DTYPE-RANKS, such as transformer-float32-2; without rows all are measured. AdamW, on noise, the same global
batch on any number of ranks; bfloat16 has float32 copies. Each round runs all ways of a row in turn. Memory is the same in every
round, so one round of one step is enough for it; times need more. --no-times leaves them out of the table,
for a machine that others use. --alone leaves out PyTorch. Rows are kept, so a run that was
stopped goes on where it was. Every way of ours must end with the bits of the plain one, or the script fails.

Memory of ours is that of the tensors of a rank at the peak of a step, with gradients and parameters that ranks share. Beside it,
as for PyTorch, stands the process's largest resident set, in which pages that ranks share count for each of them.
"""

import argparse
import json
import statistics
import subprocess
import sys

import results

OURS = results.ROOT / "build" / "release" / "memory_step"  # built where RINGGRAD_BENCH is ON
PEER = results.ROOT / "bench" / "peers" / "memory_pytorch.py"
WAYS = {"plain": [], "recompute": ["recompute"], "ZeRO-1": ["zero1"], "ZeRO-2": ["zero2"], "both": ["recompute", "zero2"]}
NETWORKS = {"resnet18": (64, 4), "resnet101": (32, 2), "transformer": (32, 4)}  # the global batch, and the steps of a run
ROWS = [f"{name}-{dtype}-{ranks}" for name in NETWORKS for dtype in ("float32", "bfloat16") for ranks in (1, 2, 4)]
LIMIT_S = 300


def run(command):
    """The JSON document that it prints, or None: PyTorch lacks some ways on some systems."""
    try:
        done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        print(f"{command}: not done after {LIMIT_S} s", file=sys.stderr)
        return None
    if done.returncode != 0:
        print(" ".join(map(str, command)), done.stderr[-500:], sep="\n", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def size_of(row, arguments):
    """The global batch, and the steps of a run."""
    batch, steps = NETWORKS[row.split("-")[0]]
    return arguments.batch or batch, arguments.steps or steps


def measure(row, given):
    """By way: the runs of ours and of PyTorch's."""
    name, dtype, ranks = row.split("-")
    batch, steps = size_of(row, given)
    names = [way for way in WAYS if int(ranks) > 1 or way in ("plain", "recompute")]
    runs = {way: ([], []) for way in names}
    for _ in range(given.rounds):
        for way in names:
            arguments = [name, dtype, ranks, steps, batch, *WAYS[way]]
            for which, command in enumerate(([OURS], [given.python, PEER])[: 1 if given.alone else 2]):
                done = run([*command, *arguments])
                if done is None and which == 0:
                    sys.exit(f"memory.py: {row}, {way}: ours failed")
                if done:
                    runs[way][which].append(done)
    bits = {done["bits"] for ours, _ in runs.values() for done in ours}
    if len(bits) > 1:
        sys.exit(f"memory.py: {row}: not all ways end with the same bits")
    return runs


def cell(own, plain, no_times):
    """Memory, and time with its ratio to the plain way of the same round."""
    ours, theirs = own

    def median(runs, key):
        return statistics.median(done[key] for done in runs)

    if no_times:
        text = f"{median(ours, 'tensor_mb'):,.0f} MB ({median(ours, 'resident_mb'):,.0f})"
        return text + (f" / ({median(theirs, 'resident_mb'):,.0f} MB)" if theirs else " / –")
    ratios = [mine["step_ms"] / other["step_ms"] for mine, other in zip(ours, plain[0])]
    text = (f"{median(ours, 'tensor_mb'):,.0f} MB ({median(ours, 'resident_mb'):,.0f}), {median(ours, 'step_ms'):,.0f} ms, "
            f"{statistics.median(ratios):.2f}× ({min(ratios):.2f}–{max(ratios):.2f})")
    if not theirs:
        return text + " / –"
    return text + f" / ({median(theirs, 'resident_mb'):,.0f} MB), {median(theirs, 'step_ms'):,.0f} ms"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, help="the global batch (default: that of the network)")
    parser.add_argument("--steps", type=int, help="the steps of a run (default: those of the network)")
    parser.add_argument("--no-times", action="store_true")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("rows", nargs="*", metavar="ROW")
    arguments = parser.parse_intermixed_args()
    if unknown := set(arguments.rows) - set(ROWS):
        parser.error(f"no row {', '.join(sorted(unknown))}; the rows: {' '.join(ROWS)}")
    table = []
    for row in arguments.rows or ROWS:
        batch, steps = size_of(row, arguments)
        runs = results.once("memory", f"{row}-{arguments.rounds}-{batch}-{steps}-{arguments.alone}", lambda: measure(row, arguments))
        name, dtype, ranks = row.split("-")
        line = [f"{name}, {dtype}, batch {batch}, {ranks} rank{'s' if ranks != '1' else ''}"]
        line += [cell(runs[way], runs["plain"], arguments.no_times) if way in runs else "–" for way in WAYS]
        table.append(line)
        print(" | ".join(line), flush=True)
    version = subprocess.run([arguments.python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    times = ", the median step, and its ratio to the plain way's in the same round" if not arguments.no_times else ""
    results.save("memory", "A training step with AdamW: ringgrad / PyTorch", ["", *WAYS], table,
                 versions={} if arguments.alone else {"PyTorch": version.stdout.strip()},
                 note=f"Ours: tensors of a rank at their peak (resident set){times}; rounds: {arguments.rounds}. All ways of a row end with "
                      "the same bits. PyTorch: the same, without its tensors. Both: recompute and ZeRO-2. The global batch is "
                      "divided among the ranks.")


if __name__ == "__main__":
    main()
