#!/usr/bin/env python3
"""Measures the cost of communication: `ringgrad bench ddp`, and PyTorch's DistributedDataParallel over Gloo, in turn, on two
ranks of one thread each. Writes bench/results/ddp.json.

    ddp.py PYTHON [SECONDS]     PYTHON can import torch; SECONDS per row and round (default 4)
"""

import json
import subprocess
import sys

import results

PEER = results.ROOT / "bench" / "peers" / "ddp_gloo.py"
MODELS = [("cnn", "MNIST CNN", 50), ("resnet20", "ResNet-20", 64), ("resnet18", "ResNet-18", 32)]  # batch per rank
RANKS = 2


def gloo(python, model, seconds):
    """The faster of PyTorch's two memory formats."""
    command = [python, str(PEER), "--models", model, "--ranks", str(RANKS), "--seconds", str(seconds / 4), "--rounds", "7"]
    document = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    return max(document["rows"], key=lambda row: row["images_per_second"]), document["peer"]


def cell(row):
    return f"{row['images_per_second']:,.0f} ({100 * row['kept_of_no_communication']:.1f} %)"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    python, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 4
    rows, peer = [], ""
    for model, title, batch in MODELS:
        document = results.ringgrad("bench", "ddp", "--model", model, "--batch", RANKS * batch, "--ranks", RANKS,
                                    "--seconds", seconds)
        ours = {row["row"]: row for row in document["rows"]}
        theirs, peer = gloo(python, model, seconds)
        rows.append([f"{title}, {batch} per rank", f"{ours['none']['images_per_second']:,.0f}", cell(ours["dp"]),
                     cell(ours["ddp_no_overlap"]), cell(ours["ddp"]), cell(theirs)])
        print(rows[-1], file=sys.stderr)
    results.save("ddp", "Images per second on two cores, and what is left of the throughput without communication",
                 ["", "one process", "DataParallel", "DDP, no overlap", "DDP", "PyTorch DDP, Gloo"], rows,
                 {"PyTorch": peer.split()[1].strip(",").split("+")[0]},
                 "In brackets: the speed relative to the same two processes without communication (no_sync), in turn. "
                 "DataParallel is compared with them, too.")


if __name__ == "__main__":
    main()
