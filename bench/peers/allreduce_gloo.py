#!/usr/bin/env python3
"""Measures Gloo's all-reduce through torch.distributed: float32 sums between ranks on this host. Prints JSON rows like those of
`ringgrad bench allreduce --json`: bytes, time_us (median of means over ranks), algbw_GBps, busbw_GBps, wrong. Ranks that were started already
measure between their hosts."""

import argparse
import statistics
import sys
import time

sys.dont_write_bytecode = True

import gloo_ranks
import report
import torch
import torch.distributed as dist

SIZES = [1 << 10, 1 << 16, 1 << 20, 4 << 20, 25 << 20, 64 << 20]


def measure(rank, sizes, seconds, least):
    rows = []
    size = dist.get_world_size()
    for count in [bytes // 4 for bytes in sizes]:
        tensor = (torch.arange(count) % 1000).float() * (rank + 1)
        dist.all_reduce(tensor)
        wrong = int((tensor != (torch.arange(count) % 1000).float() * (size * (size + 1) / 2)).sum())
        tensor.zero_()
        times = []
        for _ in range(min(3, least)):
            dist.all_reduce(tensor)
        # Every rank must agree on the number of rounds, which follows from the mean time of one.
        start = time.perf_counter()
        dist.all_reduce(tensor)
        total = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
        dist.all_reduce(total)
        for _ in range(max(least, int(seconds * size / total.item()))):
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(tensor)
            times.append(time.perf_counter() - start)
        means = torch.tensor(times, dtype=torch.float64)
        dist.all_reduce(means)
        times = (means / size).tolist()
        median = statistics.median(times)
        bytes = 4 * count
        low, _, high = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
        rows.append(
            {
                "bytes": bytes,
                "time_us": round(median * 1e6, 2),
                "quartiles_us": [round(low * 1e6, 2), round(high * 1e6, 2)],
                "algbw_GBps": round(bytes / median / 1e9, 3),
                "busbw_GBps": round(bytes / median / 1e9 * 2 * (size - 1) / size, 3),
                "repetitions": len(times),
                "wrong": wrong,
            }
        )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="bytes")
    parser.add_argument("--seconds", type=float, default=1.0, help="per size, about")
    parser.add_argument("--least", type=int, default=9, help="repetitions")
    arguments = parser.parse_args()
    rows = gloo_ranks.run(measure, arguments.ranks, 1, arguments.sizes, arguments.seconds, arguments.least)
    header = {"peer": f"Gloo in PyTorch {torch.__version__}", "machine": report.machine(), "ranks": arguments.ranks}
    report.show(header, "rows", rows)


if __name__ == "__main__":
    main()
