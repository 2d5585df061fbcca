"""The operations whose name says all: rows (name, function of the inputs, inputs), for make_ops.py.

tests/golden/golden_tensor_ops.cpp has the same names. A function that gives several tensors gives one to differentiate first.
"""

import math

import composed_ops
import torch
from torch import nn
from torch.nn import functional as F


def rows(random):
    def positive(*shape):
        return random(*shape).abs() + 0.25

    def probabilities(*shape):
        return (torch.sigmoid(random(*shape)) * 64).round() / 64

    def whole(high, *shape):
        return (random(*shape).abs() * 1000).long() % high

    def distinct(*shape):  # which of two equals topk and argmax name is PyTorch's secret
        return random(*shape) + torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape) / 4096

    def one(name, function, *shapes):
        """The same function of one tensor of each of these shapes."""
        return [(name, function, {"x": random(*shape)}) for shape in shapes]

    some = ((3, 5), (7,), (), (2, 0), (2, 3, 1, 3))
    a, b, row, ties = random(3, 5), random(3, 5), random(5), random(3, 5).round()
    mask = random(3, 5) > 0
    yield from one("sin", lambda x: torch.sin(x), *some)
    yield from one("cos", lambda x: torch.cos(x), *some)
    yield from one("square", lambda x: torch.square(x), *some)
    yield from one("elu", lambda x: F.elu(x, 0.75), *some)
    yield from one("softplus", lambda x: F.softplus(x, 1.5), *some)
    yield "log1p", lambda x: torch.log1p(x), {"x": positive(3, 5) * torch.tensor([1e-9, 1e-3, -0.4, 1, 1e6], dtype=torch.float64)}
    yield "softplus", lambda x: F.softplus(x, 1.5), {"x": torch.tensor([-400.0, -20, 0, 400], dtype=torch.float64)}
    yield "prelu", lambda x, w: F.prelu(x, w), {"x": random(2, 3, 4), "w": torch.tensor([0.25], dtype=torch.float64)}
    yield "prelu", lambda x, w: F.prelu(x, w), {"x": ties, "w": random(5)}
    yield "minimum", lambda a, b: torch.minimum(a, b), {"a": a, "b": row}
    yield "minimum", lambda a, b: torch.minimum(a, b), {"a": ties, "b": ties.roll(1, 1)}
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        compare = lambda a, b: getattr(torch, name)(a, b)
        yield name, compare, {"a": ties, "b": ties.roll(1, 1)}
        yield name, compare, {"a": random(2, 1, 3).round(), "b": random(4, 1).round()}
    yield "where", lambda c, a, b: torch.where(c > 0, a, b), {"c": random(3, 1), "a": a, "b": row}
    yield "masked_fill", lambda x, c: x.masked_fill(c != 0, -1.5), {"x": a, "c": mask.long()}
    yield "masked_select", lambda x, c: x.masked_select(c != 0), {"x": a, "c": mask.long()}
    for dims in ((), (0,), (1,), (-1, 0)):
        for name in ("any", "all"):
            y = getattr(torch, name)
            yield f"{name} {list(dims)}", lambda x: y(x > 0, dim=dims or None), {"x": a + 1}
        key = str(list(dims))
        for p in (1, 2, 3, math.inf):
            if p == math.inf and len(dims) != 1:
                continue
            yield f"norm {p} {key}", lambda x: torch.linalg.vector_norm(x, p, dims or None), {"x": a}
        yield f"std {key}", lambda x: x.std(dims or None), {"x": a}
        yield f"std {key}", lambda x: x.std(dims or None), {"x": torch.full((3, 5), 2.0, dtype=torch.float64)}
    yield "norm inf [1]", lambda x: torch.linalg.vector_norm(x, math.inf, 1), {"x": ties}
    yield "norm 2 []", lambda x: torch.linalg.vector_norm(x), {"x": torch.zeros(3, dtype=torch.float64)}
    yield from one("logsumexp", lambda x: torch.logsumexp(x, -1), (3, 5), (7,), (0, 2), (2, 3, 4))
    yield "logsumexp", lambda x: torch.logsumexp(x, -1), {"x": torch.tensor([[900.0, 901], [-900, -902]]).double()}
    yield "argmin", lambda x: x.argmin(1), {"x": distinct(3, 5)}
    yield "argmax of all", lambda x: torch.argmax(x), {"x": distinct(3, 5)}
    yield from one("cumsum 0", lambda x: x.cumsum(0), (3, 5), (7,), (0, 3), ())
    yield from one("cumsum 1", lambda x: x.cumsum(1), (3, 5), (2, 6, 3), (2, 0))
    for descending in (False, True):
        for dim in (0, 1):
            sort = lambda x: torch.sort(x, dim=dim, descending=descending, stable=True)
            yield from one(f"sort {dim} {int(descending)}", sort, (3, 5), (4, 3, 2), (2, 0))
            yield f"sort {dim} {int(descending)}", sort, {"x": ties}
        for shape in ((3, 5), (2, 7, 3), (0, 3)):
            yield f"topk {int(descending)}", lambda x: torch.topk(x, 2, 1, descending), {"x": distinct(*shape)}
    yield from one("chunk", lambda x: torch.cat([p * (i + 1) for i, p in enumerate(x.chunk(3, 1))], 1), (2, 7), (2, 6))
    yield from one("split", lambda x: torch.cat([p * (i + 1) for i, p in enumerate(x.split(2))]), (5, 3), (4,))
    yield from one("repeat", lambda x: x.repeat(2, 1, 3), (2, 3), (1, 2, 2), (0, 2))
    yield from one("select", lambda x: x.select(1, -2), (2, 3), (3, 2, 4))
    yield from one("index", lambda x: x[0, ..., None, 1:3], (2, 3, 4), (2, 5))
    rows, columns = whole(4, 2, 3) - 2, whole(5, 3)
    pairs = {"x": random(4, 5), "i": rows, "j": columns}
    yield "index pairs", lambda x, i, j: x[i, j], pairs
    yield "index in front", lambda x, i, j: x[i, :, j], {"x": random(4, 3, 5), "i": rows, "j": columns}
    yield "index behind", lambda x, i, j: x[:, i, j], {"x": random(2, 4, 5), "i": rows, "j": columns}
    yield "index of rows", lambda x, i: x[:, i], {"x": random(3, 4, 2), "i": rows}
    yield "index by mask", lambda x, m: x[:, m > 0], {"x": random(2, 3, 4, 2), "m": whole(2, 3, 4)}
    yield "index by mask and place", lambda x, m: x[m > 0, ..., 1], {"x": random(5, 2, 3), "m": whole(2, 5)}
    for accumulate in (False, True):
        place = {"i": torch.tensor([3, 0, -2]), "j": torch.tensor([[1, 1, 0], [4, 4, 2]])}
        put = lambda x, i, j, v: x.index_put((i, j), v, accumulate)
        yield f"index_put {int(accumulate)}", put, {"x": random(4, 5)} | place | {"v": random(2, 3)}
    place = torch.tensor([1, 0, 1, 1])
    twice = lambda x, i, v: x.index_put((i,), v, True)
    yield "index_put twice", twice, {"x": random(3, 2), "i": place, "v": random(4, 1)}
    yield from one("tril", lambda x: x.tril(1), (3, 5), (2, 4, 3), (0, 3))
    yield from one("triu", lambda x: x.triu(-1), (3, 5), (2, 4, 3))
    index = whole(4, 2, 5)
    yield "scatter_add", lambda x, i, v: x.scatter_add(0, i, v), {"x": random(4, 5), "i": index, "v": random(2, 5)}
    place = torch.tensor([[2, 0, 1], [1, 2, 3]])
    yield "scatter", lambda x, i, v: x.scatter(1, i, v), {"x": random(2, 4), "i": place, "v": random(2, 3)}
    yield "index_add", lambda x, i, v: x.index_add(1, i, v), {"x": random(3, 4), "i": index[0, :3], "v": random(3, 3)}
    yield "embedding", lambda i, w: F.embedding(i, w, padding_idx=1), {"i": index, "w": random(4, 3)}
    conv = lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1, dilation=2, groups=2)
    yield "conv1d", conv, {"x": random(2, 4, 9), "w": random(6, 2, 3), "b": random(6)}
    def module(made, **inputs):
        """A row for a module, whose parameters are inputs, too."""
        call = lambda x, **state: torch.func.functional_call(made.double(), state, (x,))
        return f"module {type(made).__name__}", call, inputs

    affine = lambda *shape: {"weight": random(*shape), "bias": random(*shape)}
    conv1d = nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2)
    yield module(conv1d, x=random(2, 4, 7), weight=random(6, 2, 3), bias=random(6))
    yield module(nn.GroupNorm(2, 4, eps=1e-3), x=random(2, 4, 3), **affine(4))
    yield module(nn.LayerNorm((3, 2), bias=False), x=random(2, 3, 2), weight=random(3, 2))
    yield module(nn.BatchNorm1d(3), x=random(4, 3), **affine(3))
    yield module(nn.PReLU(3), x=random(2, 3, 2), weight=random(3))
    yield module(nn.ELU(0.5), x=random(7))
    yield module(nn.LeakyReLU(0.2), x=random(7))
    yield module(nn.Softmax(0), x=random(3, 4))
    yield module(nn.LogSoftmax(1), x=random(3, 4))
    yield module(nn.Upsample(scale_factor=1.5, mode="bilinear"), x=random(1, 2, 4, 2))
    yield module(nn.Embedding(5, 3, padding_idx=-1), x=whole(5, 2, 4), weight=random(5, 3))
    group = lambda x, w, b: F.group_norm(x, 2, w, b, 1e-5)
    for shape in ((2, 4, 3, 2), (3, 4), (2, 6, 5)):
        yield "group_norm", group, {"x": random(*shape), "w": random(shape[1]), "b": random(shape[1])}
    for size in ((4, 6), (5, 3), (2, 7), (1, 1)):
        x = {"x": random(1, 2, 2, 3)}
        key = f"{size[0]} {size[1]}"
        yield f"nearest {key}", lambda x: F.interpolate(x, size, mode="nearest"), x
        yield f"bilinear {key}", lambda x: F.interpolate(x, size, mode="bilinear"), x
        yield f"corners {key}", lambda x: F.interpolate(x, size, mode="bilinear", align_corners=True), x
    for equation, left, right in (
        ("ij,jk->ik", (2, 3), (3, 4)),
        ("bij,bkj->bki", (2, 3, 4), (2, 5, 4)),
        ("i,j->ij", (3,), (4,)),
        ("ij,ij->", (2, 3), (2, 3)),
        ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
        ("ijk,j->i", (2, 3, 4), (3,)),
        ("ij,jk", (2, 3), (3, 2)),
        ("ij,jk->ik", (2, 0), (0, 3)),
    ):
        function = lambda a, b: torch.einsum(equation, a, b)
        yield f"einsum {equation}", function, {"a": random(*left), "b": random(*right)}
    for reduction in ("none", "mean", "sum"):
        for shape in ((3, 5), (), (0, 2)):
            if reduction == "mean" and 0 in shape:
                continue
            x, t, k = {"x": random(*shape)}, {"t": random(*shape)}, {"reduction": reduction}
            p = {"x": probabilities(*shape), "t": probabilities(*shape)}
            yield f"l1_loss {reduction}", lambda x, t: F.l1_loss(x, t, **k), x | t
            yield f"huber_loss {reduction}", lambda x, t: F.huber_loss(x, t, delta=0.75, **k), x | t
            yield f"smooth_l1_loss {reduction}", lambda x, t: F.smooth_l1_loss(x, t, beta=0.75, **k), x | t
            yield f"binary_cross_entropy {reduction}", lambda x, t: F.binary_cross_entropy(x, t, **k), p
            yield f"kl_div {reduction}", lambda x, t: F.kl_div(x, t, **k), x | {"t": p["t"]}
            yield f"kl_div log {reduction}", lambda x, t: F.kl_div(x, t, log_target=True, **k), x | t
        ends = torch.tensor([0.0, 0, 0, 1, 1, 1, 1e-30, 0.5], dtype=torch.float64)
        target = torch.tensor([0.0, 1, 0.5, 0, 1, 0.25, 1, 0], dtype=torch.float64)
        bce = lambda x: F.binary_cross_entropy(x, target, reduction=reduction)
        yield f"binary_cross_entropy at the ends {reduction}", bce, {"x": ends}
        zeros = torch.tensor([0.0, 0.5, 0, 1], dtype=torch.float64)
        kl = lambda x: F.kl_div(x, zeros, reduction=reduction)
        yield f"kl_div of zeros {reduction}", kl, {"x": random(4)}
    yield from composed_ops.rows(random, one, module, probabilities)
