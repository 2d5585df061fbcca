"""Sums, norms, statistics, sorting and other reductions of random programs."""

import math

import torch
from operations import ANY, absolute, dims_of, number, one, operation, over_dims


def along(kinds=("float",), **choices):
    def make(r, pool):
        x = pool.pick(r.choice(kinds), min_dim=1, filled=True)
        rank = pool.tensor(x).dim()
        return [x], {"dim": r.randint(-rank, rank - 1), **{k: r.choice(v) for k, v in choices.items()}}

    return make


@operation("sum", lambda r, pool: over_dims(r, pool, ANY))
def _(args, x):
    return x.sum(dim=dims_of(x, args), keepdim=args["keepdim"]) if x.dim() else x.sum()


@operation("mean", lambda r, pool: over_dims(r, pool, ("float",)))
def _(args, x):
    return x.mean(dim=dims_of(x, args), keepdim=args["keepdim"]) if x.dim() else x.mean()


def spread(r, pool):
    inputs, args = over_dims(r, pool, ("float",), min_dim=1)
    x = pool.tensor(inputs[0])
    args["correction"] = r.choice([0, 1, 1])
    enough = math.prod([x.shape[d] for d in dims_of(x, args)]) > args["correction"]
    return (inputs, args) if enough else None


class Known(torch.autograd.Function):
    """A reduction with this value and this slope."""

    @staticmethod
    def forward(ctx, x, value, slope):
        ctx.save_for_backward(slope)
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        (slope,) = ctx.saved_tensors
        return gradient * slope, None, None


def scale_of(x, dims):
    """Returns for each reduced row the power of two that brings float64 numbers of far-off magnitude near 1, else 1."""
    if not x.numel():
        return torch.ones((), dtype=x.dtype)
    most = x.detach().abs().nan_to_num(0, 0, 0).amax(dims, keepdim=True)
    exponent = torch.frexp(most)[1].clamp(-1000, 1000)
    far = (most > 0) & ((most > 1e100) | (most < 1e-100))
    return torch.where(far, torch.ldexp(torch.ones_like(most), -exponent), 1.0)


def reduced_exactly(args, x, theirs, ours):
    """Computes ours, (value, slope) of x, where PyTorch's float64 loses digits or overflows on the way, but for rows of NaN."""
    if x.dtype != torch.float64 or not x.numel():
        return theirs(x)
    dims = dims_of(x, args)
    broken = x.detach().isnan().sum(dims, keepdim=True) > 0
    value, slope = ours(x.detach(), dims)
    rest = theirs(torch.where(broken, x, 1.0))
    y = Known.apply(x, value, torch.where(broken, 0.0, slope)).reshape(rest.shape)
    return torch.where(broken.reshape(rest.shape), rest, y)


def spread_of(root):
    def function(args, x):
        def theirs(x):
            f = torch.std if root else torch.var
            return f(x, dim=dims_of(x, args), correction=args["correction"], keepdim=args["keepdim"])

        def ours(x, dims):  # two passes: one loses digits where one number is far larger than the others
            scale, freedom = scale_of(x, dims), math.prod([x.shape[d] for d in dims]) - args["correction"]
            apart = x * scale - (x * scale).mean(dims, keepdim=True)
            y = apart.square().sum(dims, keepdim=True) / freedom
            if root:
                return y.sqrt() / scale, torch.where(y == 0, 0, apart / freedom / y.sqrt())
            return y / scale / scale, 2 * apart / freedom / scale

        return reduced_exactly(args, x, theirs, ours)

    return function


operation("var", spread)(spread_of(False))
operation("std", spread)(spread_of(True))


def norm_of(r, pool):
    inputs, args = over_dims(r, pool, ("float",), min_dim=1, filled=True)
    return inputs, {**args, "p": r.choice([1, 2, 2, 3, 1.5, "inf"])}


@operation("norm", norm_of)
def _(args, x):
    p = number(args["p"])

    def ours(x, dims):
        scale = scale_of(x, dims)
        y = torch.linalg.vector_norm(x * scale, p, dim=dims, keepdim=True)
        return y / scale, torch.where(x == 0, 0, x.sign() * ((x * scale).abs() / y) ** (p - 1))

    return norm_in_pytorch(args, x) if p in (1, math.inf) else reduced_exactly(args, x, lambda x: norm_in_pytorch(args, x), ours)


def norm_in_pytorch(args, x):
    if args["p"] not in (2, "inf"):  # the gradient at 0 is 0, whatever the norm is
        x = torch.where(x == 0, x.detach(), x)
    if args["p"] == 1:
        x = absolute(x)
    if args["p"] == "inf":  # a norm that is NaN has gradients that are
        broken = torch.linalg.vector_norm(x.detach(), math.inf, dim=dims_of(x, args), keepdim=True).isnan()
        x = x * torch.where(broken, x.detach() * math.nan, torch.ones_like(x))
    return torch.linalg.vector_norm(x, number(args["p"]), dim=dims_of(x, args), keepdim=args["keepdim"])


KEEP = {"keepdim": [True, False]}
operation("logsumexp", along(**KEEP))(lambda args, x: torch.logsumexp(x, args["dim"], args["keepdim"]))


class Rounded(torch.autograd.Function):
    """x, whose gradient moves by a part of eps where inputs do: the spread then knows of differences that cancel behind it."""

    change = None  # the generator of these parts

    @staticmethod
    def forward(ctx, x, eps):
        ctx.eps = eps
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if Rounded.change is None:
            return gradient, None
        part = torch.rand(gradient.shape, generator=Rounded.change, dtype=torch.float64) * 2 - 1
        return gradient * (1 + ctx.eps * part), None


def softmax_of(logarithm):
    def function(args, x):
        if x.dtype != torch.float64:
            return (torch.log_softmax if logarithm else torch.softmax)(x, args["dim"])
        x = x - x.detach().amax(args["dim"], keepdim=True)
        total = x.exp().sum(args["dim"], keepdim=True)
        x, total = (x, total.log()) if logarithm else (x.exp(), total)
        x, total = (Rounded.apply(y, torch.finfo(y.dtype).eps) for y in (x, total))
        return x - total if logarithm else x / total

    return function


operation("softmax", along())(softmax_of(False))
operation("log_softmax", along())(softmax_of(True))
operation("argmax_all", one(("float", "whole"), filled=True))(lambda args, x: torch.argmax(x))
operation("argmin_all", one(("float", "whole"), filled=True))(lambda args, x: torch.argmin(x))
# The gradient goes to the first of equal elements.
operation("max_all", one(("float",), filled=True))(lambda args, x: x.reshape(-1)[torch.argmax(x)].clone())
operation("min_all", one(("float",), filled=True))(lambda args, x: x.reshape(-1)[torch.argmin(x)].clone())
for name in ("max", "min"):
    place = getattr(torch, "arg" + name)
    operation("arg" + name, along(("float", "whole"), **KEEP))(
        lambda args, x, f=place: f(x, args["dim"], keepdim=args["keepdim"])
    )

    def _(args, x, f=place):
        indices = f(x, args["dim"], keepdim=True)
        values = x.gather(args["dim"], indices)
        if not args["keepdim"]:
            return values.squeeze(args["dim"]), indices.squeeze(args["dim"])
        return values, indices

    operation(name, along(**KEEP))(_)
operation("cumsum", along(("float", "whole")))(lambda args, x: torch.cumsum(x, args["dim"]))
UP = {"descending": [True, False]}
operation("argsort", along(("float", "whole"), **UP))(
    lambda args, x: torch.argsort(x, dim=args["dim"], descending=args["descending"], stable=True)
)
operation("sort", along(("float", "whole"), **UP))(
    lambda args, x: tuple(torch.sort(x, dim=args["dim"], descending=args["descending"], stable=True))
)


def topk_of(r, pool):
    inputs, args = along(("float",), largest=[True, False])(r, pool)
    return inputs, {**args, "k": r.randint(1, pool.shape(inputs[0])[args["dim"]])}


@operation("topk", topk_of)
def _(args, x):
    values, indices = torch.sort(x, dim=args["dim"], descending=args["largest"], stable=True)
    return tuple(found.narrow(args["dim"], 0, args["k"]).contiguous() for found in (values, indices))
