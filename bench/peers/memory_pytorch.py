#!/usr/bin/env python3
"""memory_step.cpp's work in PyTorch over Gloo: memory_pytorch.py NETWORK float32|bfloat16 RANKS STEPS BATCH [recompute]
[zero1|zero2]. Prints JSON: the median step's milliseconds and the peak memory of rank 0.

zero1 is DistributedDataParallel with ZeroRedundancyOptimizer, zero2 FSDP with SHARD_GRAD_OP.
"""

import json
import os
import resource
import statistics
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

import gloo_ranks
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint_sequential


class Block(nn.Module):
    """He et al. 2015: a basic block, or a bottleneck."""

    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = 4 * width if bottleneck else width

        def conv(i, o, k, s):
            return [nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o)]

        parts = ([*conv(inputs, width, 1, 1), nn.ReLU(), *conv(width, width, 3, stride), nn.ReLU(), *conv(width, outputs, 1, 1)]
                 if bottleneck else [*conv(inputs, width, 3, stride), nn.ReLU(), *conv(width, width, 3, 1)])
        self.residual = nn.Sequential(*parts)
        self.shortcut = nn.Sequential(*conv(inputs, outputs, 1, stride)) if stride > 1 or inputs != outputs else nn.Identity()

    def forward(self, x):
        return F.relu(self.residual(x) + self.shortcut(x))


class Network(nn.Module):
    """A stem, layers one after the other, and a head."""

    def __init__(self, name, recompute):
        super().__init__()
        self.recompute = recompute
        self.stem, self.images = nn.Identity(), name != "transformer"
        if not self.images:
            layers = [nn.TransformerEncoderLayer(256, 4, 1024, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(13)]
            width = 256
        else:
            self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
            bottleneck, counts = {"resnet18": (False, (2, 2, 2, 2)), "resnet101": (True, (3, 4, 23, 3))}[name]
            layers, width = [], 64
            for stage, count in enumerate(counts):
                for i in range(count):
                    layers.append(Block(width, 64 << stage, 2 if stage and i == 0 else 1, bottleneck))
                    width = (256 if bottleneck else 64) << stage
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(width, 10)

    def forward(self, x):
        x = self.stem(x)
        if self.recompute:  # runs of about sqrt(n / 2) layers, as ours
            runs = max(1, round(len(self.layers) / max(1, (len(self.layers) / 2) ** 0.5)))
            x = checkpoint_sequential(self.layers, runs, x, use_reentrant=False)
        else:
            x = self.layers(x)
        return self.head(x.mean((2, 3)) if self.images else x[:, 0])


def train(rank, name, dtype, steps, batch, ways):
    torch.manual_seed(1)
    net = Network(name, "recompute" in ways)
    model, copies = net, []
    amp = dtype == "bfloat16"
    if amp:
        net.to(torch.bfloat16)
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.float()
    zero = 2 if "zero2" in ways else 1 if "zero1" in ways else 0
    if zero == 2:
        from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
        mixed = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16) if amp else None
        model = FullyShardedDataParallel(net.float(), sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, mixed_precision=mixed,
                                         device_id=torch.device("cpu"))
    else:
        model = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    masters = list(model.parameters())
    if amp and zero < 2:
        masters = [nn.Parameter(p.detach().float()) for p in model.parameters()]
    if zero == 1:
        from torch.distributed.optim import ZeroRedundancyOptimizer
        optimizer = ZeroRedundancyOptimizer(masters, torch.optim.AdamW, lr=1e-3)
    else:
        optimizer = torch.optim.AdamW(masters, lr=1e-3, fused=True)
    own = batch // dist.get_world_size()
    x = torch.randn(own, 64, 256) if name == "transformer" else torch.randn(own, 3, 32, 32)
    x = x.to(torch.bfloat16) if amp else x
    labels = torch.randint(0, 10, (own,))
    times = []
    for step in range(-2, steps):
        dist.barrier()
        begin = time.perf_counter()
        model.zero_grad(set_to_none=False)
        F.cross_entropy(model(x).float(), labels).backward()
        if amp and zero < 2:
            with torch.no_grad():
                for master, p in zip(masters, model.parameters()):
                    master.grad = p.grad.float()
        optimizer.step()
        if amp and zero < 2:
            with torch.no_grad():
                for master, p in zip(masters, model.parameters()):
                    p.copy_(master)
                    master.grad = None
        dist.barrier()
        if step >= 0:
            times.append(1e3 * (time.perf_counter() - begin))
    return {"step_ms": statistics.median(times), "resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1.024e-3}


def main():
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    name, dtype, ranks, steps, batch = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    threads = max(1, len(os.sched_getaffinity(0)) // ranks)
    print(json.dumps(gloo_ranks.run(train, ranks, threads, name, dtype, steps, batch, sys.argv[6:])))


if __name__ == "__main__":
    main()
