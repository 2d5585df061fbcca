"""Convolutions, pools, norms and losses of random programs."""

import math

import torch
import torch.nn.functional as F
from operations import absolute, operation, relu, same
from reductions import Rounded, scale_of


# ---- images ---------------------------------------------------------------------------------------------------------
def conv_of(r, pool, transposed=False):
    x = pool.images(r)
    n, channels, height, width = pool.shape(x)
    groups = r.choice([g for g in (1, 1, 1, 2, 3, channels) if channels % g == 0])
    out = groups * r.choice([1, 2, 3, 4, 8, 16])
    kernel = [r.choice([1, 2, 3, 3, 5]) for _ in range(2)]
    args = {
        "stride": [r.choice([1, 1, 2, 3]) for _ in range(2)],
        "padding": [r.choice([0, 1, 1, 2, 3]) for _ in range(2)],
        "dilation": [r.choice([1, 1, 1, 2]) for _ in range(2)],
        "groups": groups,
    }
    if r.random() < 0.4:  # the shapes that networks have
        kernel, args = [3, 3], {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": groups}
    if transposed:
        args["output_padding"] = [r.randrange(max(s, d)) for s, d in zip(args["stride"], args["dilation"])]
        args["padding"] = [min(p, d * (k - 1)) for p, d, k in zip(args["padding"], args["dilation"], kernel)]
        for size, k, s, p, d, o in zip((height, width), kernel, *(args[n] for n in ("stride", "padding", "dilation", "output_padding"))):
            if (size - 1) * s - 2 * p + d * (k - 1) + o + 1 < 1:
                return None
        shape = [channels, out // groups, *kernel]
    else:
        for size, k, p, d in zip((height, width), kernel, args["padding"], args["dilation"]):
            if size + 2 * p - d * (k - 1) < 1:
                return None
        shape = [out, channels // groups, *kernel]
    kind = pool.weight_dtype(x, r)
    inputs = [x, pool.new(kind, shape, parameter=True, finite=True)]
    return inputs + ([pool.new(kind, [out], parameter=True)] if r.random() < 0.6 else []), args


def window(args):
    return {name: args[name] for name in ("stride", "padding", "dilation", "groups")}


class BesideZeros(torch.autograd.Function):
    """A convolution's weight. If a pixel is not finite, ringgrad may multiply it by zeros around the other image. Then the
    spread allows every value in a filter's channel that has values that are not finite."""

    @staticmethod
    def forward(ctx, weight):
        return weight.clone()

    @staticmethod
    def backward(ctx, gradient):
        broken = ~gradient.isfinite().flatten(2).all(2)[:, :, None, None]
        return gradient.masked_fill(broken & (Rounded.change is not None), torch.inf)


def beside_zeros(x, *weights):
    weight, *bias = same(x, *weights)
    return [BesideZeros.apply(weight), *bias]


@operation("conv2d", conv_of)
def _(args, x, *weights):
    return F.conv2d(x, *beside_zeros(x, *weights), **window(args))


@operation("conv_transpose2d", lambda r, pool: conv_of(r, pool, transposed=True))
def _(args, x, *weights):
    return F.conv_transpose2d(x, *beside_zeros(x, *weights), **window(args), output_padding=args["output_padding"])


def conv1d_of(r, pool):
    x = pool.pick("float", min_dim=3, max_dim=3, filled=True)
    _, channels, length = pool.shape(x)
    args = {"stride": r.choice([1, 2]), "padding": r.choice([0, 1, 2]), "dilation": r.choice([1, 2]), "groups": 1}
    kernel = r.choice([1, 2, 3])
    if length + 2 * args["padding"] - args["dilation"] * (kernel - 1) < 1:
        return None
    out = r.choice([1, 2, 5])
    inputs = [x, pool.new(pool.dtype(x), [out, channels, kernel], parameter=True, finite=True)]
    return inputs + ([pool.new(pool.dtype(x), [out], parameter=True)] if r.random() < 0.6 else []), args


operation("conv1d", conv1d_of)(lambda args, x, *weights: F.conv1d(x, *weights, **window(args)))


def pool_of(r, pool):
    x = pool.images(r)
    kernel = [r.choice([1, 2, 2, 3]) for _ in range(2)]
    padding = [r.randint(0, k // 2) for k in kernel]
    if any(size + 2 * p < k for size, p, k in zip(pool.shape(x)[2:], padding, kernel)):
        return None
    stride = [r.choice([1, 2, 3, k]) for k in kernel]
    return [x], {"kernel": kernel, "stride": stride, "padding": padding, "count_padding": r.random() < 0.5}


@operation("max_pool2d", pool_of)
def _(args, x):
    ranks = x.detach().nan_to_num(math.inf, torch.finfo(x.dtype).max)  # the gradient goes to the first NaN, too
    _, places = F.max_pool2d(ranks, args["kernel"], args["stride"], args["padding"], return_indices=True)
    return x.flatten(2).gather(2, places.flatten(2)).reshape(places.shape)


@operation("avg_pool2d", pool_of)
def _(args, x):
    return F.avg_pool2d(x, args["kernel"], args["stride"], args["padding"], count_include_pad=args["count_padding"])


def sized(r, pool):
    return [pool.images(r)], {"size": [r.randint(1, 9) for _ in range(2)]}


operation("adaptive_avg_pool2d", sized)(lambda args, x: F.adaptive_avg_pool2d(x, args["size"]))


def upsampled(r, pool):
    inputs, args = sized(r, pool)
    mode = r.choice(["nearest", "bilinear"])
    return inputs, {**args, "mode": mode, "align_corners": mode == "bilinear" and r.random() < 0.5}


def between(x, dim, size, align_corners):
    """Takes `size` places along a dimension. PyTorch multiplies pixels of weight 0, too, which gives NaN beside infinity."""
    last, place = x.shape[dim] - 1, torch.arange(size, dtype=x.dtype)
    place = place * last / max(size - 1, 1) if align_corners else (place + 0.5) * x.shape[dim] / size - 0.5
    lower = place.floor().clamp(0, last)
    part = (place - lower).clamp(0, 1).reshape([-1] + [1] * (3 - dim))
    below, above = (x.index_select(dim, at.long()) for at in (lower, (lower + 1).clamp(max=last)))
    return torch.where(part == 0, below, below * (1 - part) + above * part)


@operation("upsample", upsampled)
def _(args, x):
    if args["mode"] == "bilinear" and x.dtype == torch.float64:
        return between(between(x, 3, args["size"][1], args["align_corners"]), 2, args["size"][0], args["align_corners"])
    if args["mode"] == "bilinear":
        return F.interpolate(x, args["size"], mode="bilinear", align_corners=args["align_corners"])
    rows, columns = (torch.arange(p) * n // p for p, n in zip(args["size"], x.shape[2:]))
    return x.index_select(2, rows).index_select(3, columns)


# ---- norms ----------------------------------------------------------------------------------------------------------
EPS = [1e-5, 1e-5, 1e-3, 1e-2]


def batch_norm_of(r, pool):
    x = pool.pick("float", min_dim=2, max_dim=4, filled=True)
    shape = pool.shape(x)
    if pool.tensor(x).numel() < 3 * shape[1]:
        return None
    kind = pool.statistics_dtype(x)
    # A weight is divided by its channel's deviation before anything else: one at the end of the range overflows.
    inputs = [x] + [pool.new(kind, shape[1:2], parameter=True, finite=True) for _ in range(2)]
    inputs += [pool.new(kind, shape[1:2]), pool.new(kind, shape[1:2], positive=True)]
    relu = r.random() < 0.4
    if r.random() < 0.3:
        inputs.append(pool.pick_shape(pool.dtype(x), shape))
    args = {"training": r.random() < 0.7, "momentum": r.choice([0.1, 0.5, 1.0]), "eps": r.choice(EPS), "relu": relu}
    return inputs, {**args, "dtype": pool.dtype(x)}


def normalized_batch(args, x, weight, bias):
    """F.batch_norm in parts: where one number is far from the others, the parts of its gradient cancel."""
    dims = [0, *range(2, x.dim())]
    shape = [-1] + [1] * (x.dim() - 2)
    rounded = [Rounded.apply(x, torch.finfo(getattr(torch, args["dtype"])).eps) for _ in range(3)]
    apart, wide = (y - rounded[1].mean(dims, keepdim=True) for y in (rounded[0], rounded[2]))
    deviation = (wide.square().mean(dims, keepdim=True) + args["eps"]).sqrt()
    return apart / deviation * weight.reshape(shape) + bias.reshape(shape)


@operation("batch_norm", batch_norm_of)
def _(args, x, weight, bias, mean, var, *residual):
    mean, var = mean.clone(), var.clone()
    wide = torch.promote_types(x.dtype, mean.dtype)
    if args["training"]:
        y = F.batch_norm(x.to(wide), mean, var, weight, bias, True, args["momentum"], args["eps"])
        if x.dtype == torch.float64 and args["dtype"] != "float64":
            y = normalized_batch(args, x, weight, bias)
        elif bool((scale_of(x, dims := [0, *range(2, x.dim())]) < 1).any()) and x.dtype == torch.float64:
            shape = [-1] + [1] * (x.dim() - 2)
            y = normalized(x, dims, args["eps"]) * weight.reshape(shape) + bias.reshape(shape)
    else:  # PyTorch folds the four into two, which may be inf - inf
        shape = [-1] + [1] * (x.dim() - 2)
        scale = (weight / (var + args["eps"]).sqrt()).reshape(shape)
        y = (x.to(wide) - mean.reshape(shape)) * scale + bias.reshape(shape)
    if residual:
        y = y + residual[0].to(wide)
    y = y.to(x.dtype)  # ReLU's gradient is that at the rounded number
    return relu(y) if args["relu"] else y, mean, var


def affine(r, pool, x, shape):
    kind = pool.weight_dtype(x, r)
    return [x] + [pool.new(kind, shape, parameter=True) for _ in range(r.choice([0, 1, 2]))]


def layer_norm_of(r, pool):
    x = pool.pick("float", min_dim=1, filled=True)
    shape = pool.shape(x)
    shape = shape[r.randrange(len(shape)) :]
    if torch.Size(shape).numel() == 2:  # its gradient is nothing but rounding errors
        return None
    return affine(r, pool, x, shape), {"shape": shape, "eps": r.choice(EPS)}


def normalized(x, dims, eps):
    """Normalises float64 over `dims`; a power of two keeps the squares of large numbers in range, as ringgrad does."""
    scale = scale_of(x, dims).clamp(2.0**-520, 1)  # times eps it is still a number
    x = x * scale
    apart = x - x.mean(dims, keepdim=True)
    return apart / (apart.square().mean(dims, keepdim=True) + eps * scale**2).sqrt()


@operation("layer_norm", layer_norm_of)
def _(args, x, *weights):
    weights = same(x, *weights)
    dims = list(range(x.dim() - len(args["shape"]), x.dim()))
    if torch.Size(args["shape"]).numel() == 1:  # the gradient is 0, where PyTorch leaves rounding errors
        x = x.detach() + 0 * x
    if x.dtype != torch.float64 or bool((scale_of(x, dims) >= 1).all()):
        return F.layer_norm(x, args["shape"], *weights, eps=args["eps"])
    y = normalized(x, dims, args["eps"])
    y = y * weights[0] if weights else y
    return y + weights[1] if len(weights) > 1 else y


def group_norm_of(r, pool):
    x = pool.pick("float", min_dim=2, max_dim=4, filled=True)
    channels = pool.shape(x)[1]
    groups = r.choice([g for g in range(1, channels + 1) if channels % g == 0])
    if pool.tensor(x).numel() < 3 * pool.shape(x)[0] * groups:
        return None
    return affine(r, pool, x, [channels]), {"groups": groups, "eps": r.choice(EPS)}


@operation("group_norm", group_norm_of)
def _(args, x, *weights):
    weights = same(x, *weights)
    grouped = x.reshape(x.shape[0], args["groups"], -1)
    if x.dtype != torch.float64 or bool((scale_of(grouped, [2]) >= 1).all()):
        return F.group_norm(x, args["groups"], *weights, eps=args["eps"])
    weights = [w.reshape([-1] + [1] * (x.dim() - 2)) for w in weights]
    y = normalized(grouped, [2], args["eps"]).reshape(x.shape)
    y = y * weights[0] if weights else y
    return y + weights[1] if len(weights) > 1 else y


# ---- losses ---------------------------------------------------------------------------------------------------------
REDUCTIONS = ["mean", "sum", "none"]


def class_loss_of(smooth):
    def make(r, pool):
        x = pool.pick("float", min_dim=2, max_dim=4, filled=True)
        shape = pool.shape(x)
        if len(shape) == 3 or (len(shape) == 4 and not smooth and r.random() < 0.5):
            return None
        classes = shape[1]
        ignored = r.choice([-100, 0, 255])
        target = pool.new("int64", shape[:1] + shape[2:], values=list(range(classes)) + [ignored])
        inputs = [x, target] + ([pool.new(pool.dtype(x), [classes], positive=True)] if r.random() < 0.3 else [])
        smoothing = r.choice([0.0, 0.0, 0.1, 0.5]) if smooth else 0.0
        return inputs, {"ignore_index": ignored, "label_smoothing": smoothing, "reduction": r.choice(REDUCTIONS)}

    return make


def wide(loss):  # that of 16-bit logits is float32
    return loss if loss.dtype == torch.float64 else loss.float()


def ignoring(x, target, args):  # rows that are ignored have no gradient, whatever they hold
    return torch.where((target == args["ignore_index"]).unsqueeze(1), x.detach(), x)


@operation("cross_entropy", class_loss_of(True))
def _(args, x, target, *weight):
    return wide(F.cross_entropy(ignoring(x, target, args), target, *weight, **args))


@operation("nll_loss", class_loss_of(False))
def _(args, x, target, *weight):
    return wide(F.nll_loss(ignoring(x, target, args), target, *weight, ignore_index=args["ignore_index"], reduction=args["reduction"]))


def loss_of(target, **choices):
    def make(r, pool):
        x = pool.pick("float", unit=target == "units")
        args = {"reduction": r.choice(REDUCTIONS), **{k: r.choice(v) for k, v in choices.items()}}
        t = pool.new(pool.dtype(x), pool.shape(x), unit=target != "any", parameter=target == "any")
        return [x, t], args

    return make


operation("mse_loss", loss_of("any"))(lambda args, x, t: F.mse_loss(x, t, reduction=args["reduction"]))


@operation("l1_loss", loss_of("any"))
def _(args, x, t):
    y = absolute(x - t)
    return {"none": y, "sum": y.sum(), "mean": y.mean()}[args["reduction"]]


operation("huber_loss", loss_of("any", c=[1.0, 0.3, 2.0]))(
    lambda args, x, t: F.huber_loss(x, t, reduction=args["reduction"], delta=args["c"])
)


operation("smooth_l1_loss", loss_of("any", c=[1.0, 0.3, 2.0, 50.0]))(
    lambda args, x, t: F.smooth_l1_loss(x, t, reduction=args["reduction"], beta=args["c"])
)


@operation("bce_with_logits", loss_of("unit"))
def _(args, x, t):  # at t = 1 and x = ∞ it is 0, not 0 · ∞
    y = torch.where(t == 1, 0, (1 - t) * torch.where(t == 1, 0, x)) - F.logsigmoid(x)
    if x.dtype == torch.float64:  # (1 - t) x - x has few digits of a small t
        small = (x < -1) & x.isfinite()
        safe = torch.where(small, x, -2)
        y = torch.where(small, torch.log1p(torch.exp(safe)) - t * safe, y)
    return {"none": y, "sum": y.sum(), "mean": y.mean()}[args["reduction"]]


@operation("bce", loss_of("units"))
def _(args, x, t):  # what was changed a little to see what moves may be above 1
    x, t = (y + (y.clamp(0, 1) - y).detach() for y in (x, t))
    return F.binary_cross_entropy(x, t, reduction=args["reduction"])


@operation("kl_div", loss_of("unit", log_target=[True, False]))
def _(args, x, t):
    y = F.kl_div(x, t, reduction="none", log_target=args["log_target"])
    return {"none": y, "sum": y.sum(), "mean": y.mean()}[args["reduction"]]
