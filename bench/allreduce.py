#!/usr/bin/env python3
"""Measures all-reduce between two ranks of this host: `ringgrad bench allreduce`, Gloo (through PyTorch) and the MPI library
of mpicc, in turn. Writes bench/results/allreduce.json.

    allreduce.py PYTHON [ROUNDS [SECONDS]]      PYTHON can import torch, whose Gloo is measured
"""

import json
import statistics
import subprocess
import sys

import results

PEERS = results.ROOT / "bench" / "peers"
BOUND_FROM = 25 << 20


def run(*command):
    return json.loads(subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True, check=True).stdout)


def size_name(bytes):
    return f"{bytes >> 20} MiB" if bytes >= 1 << 20 else f"{bytes >> 10} KiB"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    python = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    seconds = sys.argv[3] if len(sys.argv) > 3 else "0.5"
    documents = {"shm": [], "tcp": [], "mpi": [], "gloo": []}
    for _ in range(rounds):
        documents["shm"].append(results.ringgrad("bench", "allreduce", "--bound", "--seconds", seconds))
        documents["mpi"].append(run(PEERS / "allreduce_mpi.sh", 2, seconds))
        documents["gloo"].append(run(python, PEERS / "allreduce_gloo.py", "--seconds", seconds))
        documents["tcp"].append(results.ringgrad("bench", "allreduce", "--transport", "tcp", "--seconds", seconds))

    def times(who, row, key="time_us"):
        return [document["rows"][row][key] for document in documents[who]]

    def faster(row, ours, theirs):  # the ratios of runs that stood side by side
        return f"{statistics.median(b / a for a, b in zip(times(ours, row), times(theirs, row))):.1f}×"

    rows = []
    for i, first in enumerate(documents["shm"][0]["rows"]):
        assert all(document["rows"][i]["wrong"] == 0 for runs in documents.values() for document in runs)
        bound = "–"
        if first["bytes"] >= BOUND_FROM:
            shares = [b / a for a, b in zip(times("shm", i), times("shm", i, "threads_of_one_process_us"))]
            bound = f"{100 * statistics.median(shares):.0f} %"
        rows.append([size_name(first["bytes"]), *(f"{statistics.median(times(who, i)):,.1f}" for who in documents),
                     faster(i, "shm", "mpi"), faster(i, "shm", "gloo"), faster(i, "tcp", "gloo"), bound])
    results.save(
        "allreduce", "All-reduce of float32 between 2 ranks on one host: microseconds, medians",
        ["", "ringgrad, shared memory", "ringgrad, TCP", "Open MPI", "Gloo", "shared memory faster than Open MPI",
         "than Gloo", "TCP faster than Gloo", "of the speed of two threads"], rows,
        {"mpi": documents["mpi"][0]["peer"], "gloo": documents["gloo"][0]["peer"]},
        note="Open MPI and Gloo are called as their users call them, Gloo from Python. The last column compares with the "
             "same sums by two threads of one process.")


if __name__ == "__main__":
    main()
