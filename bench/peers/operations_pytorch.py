#!/usr/bin/env python3
"""Measures the operations of bench/operations.cpp in PyTorch, or the named ones. Prints {"name": [microseconds forward, with
backward], …}.

    operations_pytorch.py float32|bfloat16 [NAME…]
"""

import json
import os
import statistics
import sys
import time

import torch
from torch.nn import functional as F

results, dtype, names = {}, getattr(torch, sys.argv[1]), sys.argv[2:]
threads = int(os.environ.get("RINGGRAD_THREADS", os.cpu_count()))
now = time.process_time if threads == 1 else time.perf_counter


def randn(*shape):
    return torch.randn(*shape).to(dtype)


def median_us(run):
    for _ in range(2):
        run()
    times, start = [], now()
    while len(times) < 3 or now() - start < 0.1:
        begin = now()
        run()
        times.append(1e6 * (now() - begin))
    return statistics.median(times)


def measure(name, inputs, run):
    if names and name not in names:
        return
    with torch.no_grad():
        forward, grad = median_us(lambda: run(*inputs)), torch.ones_like(run(*inputs))
    for x in inputs:
        x.requires_grad_()

    def both():
        for x in inputs:
            x.grad = None
        run(*inputs).backward(grad)

    results[name] = [forward, median_us(both)]


def whole(shape, most):
    return (torch.rand(shape) * most).long()


def square_matrices():
    shape = (1024, 1024)
    other, part = randn(shape), (torch.rand(shape) * 0.9 + 0.05).to(dtype)
    row, column, places, all_places = randn(1024), randn(1024, 1), torch.randperm(1024), whole(shape, 1023)
    cases = {
        "exp": torch.exp, "sin": torch.sin, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": F.relu, "gelu": F.gelu,
        "silu": F.silu, "elu": F.elu, "softplus": F.softplus, "pow 3": lambda x: x ** 3,
        "dropout": lambda x: F.dropout(x, 0.5), "add": lambda x: x + other, "add row": lambda x: x + row,
        "mul column": lambda x: x * column, "where": lambda x: torch.where(x > 0, x, other), "sum": torch.sum,
        "sum 0": lambda x: x.sum(0), "sum 1": lambda x: x.sum(1), "var 1": lambda x: x.var(1), "max": torch.max,
        "max 1": lambda x: x.max(1)[0], "cumsum 0": lambda x: x.cumsum(0), "sort": lambda x: x.sort()[0],
        "topk": lambda x: x.topk(5)[0], "mse": lambda x: F.mse_loss(x, other), "huber": lambda x: F.huber_loss(x, other),
        "bce with logits": lambda x: F.binary_cross_entropy_with_logits(x, part),
        "transposed copy": lambda x: x.t().contiguous(), "cat 1": lambda x: torch.cat((x, other), 1), "tril": torch.tril,
        "index_select 0": lambda x: x.index_select(0, places), "gather 1": lambda x: x.gather(1, all_places),
        "scatter_add 1": lambda x: x.scatter_add(1, all_places, other), "index_add 0": lambda x: x.index_add(0, places, other),
        "masked_select": lambda x: x.masked_select(x > 0),
    }
    for name, run in cases.items():
        measure(name, [randn(shape)], run)
    measure("log", [part.clone()], torch.log)


def layers():
    images = (32, 64, 28, 28)
    measure("softmax", [randn(8192, 128)], lambda x: x.softmax(-1))
    measure("softmax 0", [randn(128, 8192)], lambda x: x.softmax(0))
    thousand, ten, words = whole(1024, 999), whole(8192, 9), whole(8192, 31999)
    measure("cross_entropy 1000", [randn(1024, 1000)], lambda x: F.cross_entropy(x, thousand))
    measure("cross_entropy 10", [randn(8192, 10)], lambda x: F.cross_entropy(x, ten))
    measure("layer_norm", [randn(4096, 512), randn(512), randn(512)], lambda x, w, b: F.layer_norm(x, (512,), w, b))
    measure("group_norm", [randn(images), randn(64), randn(64)], lambda x, w, b: F.group_norm(x, 8, w, b))
    for name, shape in (("batch_norm 2d", images), ("batch_norm 1d", (4096, 256))):
        measure(name, [randn(shape), randn(shape[1]), randn(shape[1])],
                lambda x, w, b: F.batch_norm(x, None, None, w, b, True))
    measure("prelu", [randn(images), randn(64)], F.prelu)
    measure("max_pool", [randn(images)], lambda x: F.max_pool2d(x, 2))
    measure("avg_pool", [randn(images)], lambda x: F.avg_pool2d(x, 2))
    measure("upsample nearest", [randn(16, 64, 14, 14)], lambda x: F.interpolate(x, (28, 28)))
    measure("upsample bilinear", [randn(16, 64, 14, 14)], lambda x: F.interpolate(x, (28, 28), mode="bilinear"))
    measure("pad", [randn(images)], lambda x: F.pad(x, (1, 1, 1, 1)))
    measure("permuted copy", [randn(images)], lambda x: x.permute(0, 2, 3, 1).contiguous())
    measure("embedding", [randn(32000, 256)], lambda x: F.embedding(words, x))


def products():
    bmm = (64, 128, 64)
    measure("matmul", [randn(512, 512), randn(512, 512)], torch.matmul)
    for n in (1024, 2048, 4096) if names else ():
        measure(f"matmul {n}", [randn(n, n), randn(n, n)], torch.matmul)
    measure("bmm", [randn(bmm), randn(64, 64, 128)], torch.matmul)
    measure("linear", [randn(256, 1024), randn(1024, 1024), randn(1024)], F.linear)
    measure("attention", [randn(bmm), randn(bmm), randn(bmm)],
            lambda q, k, v: (q @ k.transpose(1, 2) / 8).softmax(-1) @ v)
    for name, heads in (("attention 64", (1, 4, 64, 32)), ("attention 256", (16, 8, 256, 64)), ("attention 2048", (1, 8, 2048, 64))):
        for end, causal in (("", False), (", causal", True)):
            measure(name + end, [randn(heads), randn(heads), randn(heads)],
                    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal))
    x = (16, 64, 28, 28)
    for name, images, weight, options in (
            ("conv 3x3", x, (64, 64, 3, 3), {"padding": 1}),
            ("conv 1x1", x, (128, 64, 1, 1), {}),
            ("conv 5x5", x, (64, 64, 5, 5), {"padding": 2}),
            ("conv 7x7 / 2, 3 channels", (8, 3, 112, 112), (64, 3, 7, 7), {"stride": 2, "padding": 3}),
            ("conv 4x4 / 2", (16, 64, 32, 32), (128, 64, 4, 4), {"stride": 2, "padding": 1}),
            ("conv 3x3, dilated", x, (64, 64, 3, 3), {"padding": 2, "dilation": 2}),
            ("conv 3x3, 4 groups", x, (64, 16, 3, 3), {"padding": 1, "groups": 4}),
            ("conv 3x3, depthwise", x, (64, 1, 3, 3), {"padding": 1, "groups": 64})):
        measure(name, [randn(images), randn(weight), randn(weight[0])],
                lambda x, w, b: F.conv2d(x, w, b, **options))
    measure("conv_transpose 4x4 / 2", [randn(16, 128, 16, 16), randn(128, 64, 4, 4), randn(64)],
            lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1))


torch.set_num_threads(threads)
square_matrices()
layers()
products()
print(json.dumps(results))
