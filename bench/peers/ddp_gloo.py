#!/usr/bin/env python3
"""Measures the cost of communication in PyTorch: DistributedDataParallel over Gloo, the same processes with and without
no_sync() in turn, one thread per rank. Prints JSON. kept_of_no_communication is the number that `ringgrad bench ddp` reports.
"""

import argparse
import contextlib
import statistics
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "golden"))

import gloo_ranks
import networks
import report
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WORK = {"cnn": 50, "resnet20": 64, "resnet18": 32}  # batch per rank


def measure(rank, name, batch, steps, rounds, channels_last):
    torch.manual_seed(rank)
    _, shape, classes, _ = networks.NETWORKS[name]
    images, labels = torch.randn(batch, *shape), torch.randint(0, classes, (batch,))
    model = networks.build(name)
    if channels_last:
        model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01, momentum=0.9, fused=True)

    def block(communicate):
        """Seconds for `steps` steps, from when all ranks have begun until all are done."""
        dist.barrier()
        start = time.perf_counter()
        for _ in range(steps):
            with contextlib.nullcontext() if communicate else ddp.no_sync():
                torch.nn.functional.cross_entropy(ddp(images), labels).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        dist.barrier()
        return time.perf_counter() - start

    block(True)
    block(False)
    pairs = [(block(True), block(False)) for _ in range(rounds)]
    images_in_block = steps * batch * dist.get_world_size()
    kept = [without / with_ for with_, without in pairs]
    return {
        "model": name,
        "batch_per_rank": batch,
        "channels_last": channels_last,
        "images_per_second": round(images_in_block / statistics.median(p[0] for p in pairs), 1),
        "images_per_second_without_communication": round(images_in_block / statistics.median(p[1] for p in pairs), 1),
        "kept_of_no_communication": round(statistics.median(kept), 4),
        "kept_of_each_round": [round(k, 4) for k in kept],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--models", nargs="*", choices=list(WORK), default=list(WORK))
    parser.add_argument("--rounds", type=int, default=5, help="pairs of blocks")
    parser.add_argument("--seconds", type=float, default=2.0, help="per block, about")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.models:
        images_per_second = {"cnn": 3000, "resnet20": 280, "resnet18": 30}[name]  # of one thread, to size the blocks
        steps = max(2, int(arguments.seconds * images_per_second / WORK[name]))
        for channels_last in (False, True):
            work = (name, WORK[name], steps, arguments.rounds, channels_last)
            rows.append(gloo_ranks.run(measure, arguments.ranks, 1, *work))
            print(rows[-1], file=sys.stderr)
    header = {"peer": f"PyTorch {torch.__version__}, Gloo", "machine": report.machine(), "ranks": arguments.ranks}
    report.show(header, "rows", rows)


if __name__ == "__main__":
    main()
