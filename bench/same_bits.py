#!/usr/bin/env python3
"""Tests that `train --shards 8` gives the same bits on any number of ranks: compares the SHA-256 of trained networks. Writes
bench/results/same_bits.json.

    same_bits.py DATA_DIR [--fewer] [--minutes M]     the folder with MNIST and CIFAR-10

--fewer: more than two ranks have one thread each. --minutes: after this time no further row is begun. Rows that the table
lacks come first. Rows that are not reached keep their old value and commit.

A row is one arithmetic: network, batch, optimizer, dtype, batch norm. It is trained with every division of the work: ranks,
threads, transport. All of them must give one value, or the script fails and names those that differ. One row is a whole
epoch, with its smaller last batch.
"""

import argparse
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import results

SHARDS = 8
MNIST, CIFAR = ["--data", "mnist", "--model", "cnn"], ["--data", "cifar10", "--model", "resnet20"]
NETWORKS = [("MNIST cnn", MNIST, 200), ("ResNet-20", CIFAR, 50)]


def ways(fewer):
    """(ranks, threads, transport) of each division. One rank has no transport; dp: replicas of DataParallel in one process."""
    yield 1, 1, "none"
    yield 1, 2, "none"
    for replicas in [2, 3]:
        yield replicas, 2, "dp"
    transports = ["shm", "tcp"] + (["mpi"] if shutil.which("mpirun") else [])
    for ranks, transport in itertools.product([2, 3, 4, 8], transports):
        for threads in [1] if fewer and ranks > 2 else [1, 2]:
            yield ranks, threads, transport


def rows():
    """(name, options, steps; 0: an epoch)."""
    yield "MNIST cnn, batch 128, sgd, fp32, an epoch", [*MNIST, "--batch", 128, "--epochs", 1], 0
    arithmetics = itertools.product([128, 120], ["sgd", "adamw"], ["fp32", "bf16"], [False, True])
    for (batch, optimizer, dtype, sync), (name, network, steps) in itertools.product(arithmetics, NETWORKS):
        words = [*network, "--batch", batch, "--optimizer", optimizer, "--dtype", dtype, *["--sync-bn"] * sync]
        yield f"{name}, batch {batch}, {optimizer}, {dtype}{', SyncBN' * sync}", words, steps


def train(words, way, data):
    """The program's output at the end of a run."""
    ranks, threads, transport = way
    command = [str(results.RINGGRAD), "train", *map(str, words), "--shards", str(SHARDS), "--data-dir", data, "--json"]
    if transport == "none":
        command += ["--parallel", "none"]
    elif transport == "dp":
        command += ["--parallel", "dp", "--ranks", str(ranks)]
    elif transport == "mpi":
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), *command, "--backend", "mpi"]
    else:
        command += ["--ranks", str(ranks), "--transport", transport]
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, "RINGGRAD_THREADS": str(threads)}
        done = subprocess.run([*command, "--out", f"{scratch}/run"], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_dir", metavar="DATA_DIR", type=lambda word: str(Path(word).resolve()))
    parser.add_argument("--fewer", action="store_true")
    parser.add_argument("--minutes", type=float, default=math.inf)
    arguments = parser.parse_args()
    data, fewer, until = arguments.data_dir, arguments.fewer, time.monotonic() + 60 * arguments.minutes
    kept = results.FOLDER / "same_bits.json"
    table = {row[0]: row for row in json.loads(kept.read_text())["rows"]} if kept.exists() else {}
    differing, names = [], [name for name, _, _ in rows()]
    for name, options, steps in sorted(rows(), key=lambda row: row[0] in table):
        keys = {way: "-".join(map(str, [name.replace(" ", "_").replace(",", ""), *way])) for way in ways(fewer)
                if way[2] != "dp" or "SyncBN" not in name}  # SyncBN needs one device per rank
        if time.monotonic() > until:
            break
        limit = ["--max-steps", steps] if steps else []
        said = {way: results.once("same_bits", key, lambda: train([*options, *limit], way, data))
                for way, key in keys.items()}
        hashes = {way: (run["parameters_sha256"], run["test_loss"]) for way, run in said.items()}
        expected = hashes[next(iter(hashes))]
        differing += [f"{name} on {way}: {found}, expected {expected}" for way, found in hashes.items() if found != expected]
        table[name] = [name, str(next(iter(said.values()))["steps"]), f"{len(set(hashes.values()))} of {len(hashes)}",
                       f"{expected[0][:16]}…", results.commit()]
        print(table[name], file=sys.stderr, flush=True)
    if differing:
        sys.exit("\n".join(differing))
    transports = " × ".join(sorted({way[2] for way in ways(fewer)} - {"none"}))
    results.save("same_bits", f"The same bits: `train --shards {SHARDS}` on 1, 2, 3, 4 and 8 ranks × 1 and 2 threads × {transports}",
                 ["", "steps", "values, of ways", "SHA-256 of weights and buffers", "commit"],
                 [table[name] for name in names if name in table],
                 note="With more than two ranks, each rank had one thread. " * fewer
                 + f"{len(names) - len(table)} more rows, of other combinations, were not run." * (len(table) < len(names)))


if __name__ == "__main__":
    main()
