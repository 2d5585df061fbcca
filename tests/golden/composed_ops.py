"""The operations that are made of others, and those that came with them: rows as those of tensor_ops.py.

tests/golden/golden_composed_ops.cpp has the same names.
"""

import torch
from torch import nn
from torch.nn import functional as F


def rows(random, one, module, probabilities):
    some = ((3, 5), (7,), (), (2, 0), (2, 3, 1, 3))
    whole = torch.tensor([-2.5, -1.5, -0.5, 0, 0.5, 1.5, 2.5, 7.25, -3.75, 1e6], dtype=torch.float64)
    for name in ("floor", "ceil", "round", "trunc", "sign"):
        function = lambda x: getattr(torch, name)(x)
        yield name, function, {"x": whole}
        yield from one(name, function, *some)
    yield "sign", lambda x: torch.sign(x), {"x": torch.tensor([3, 0, -7])}
    yield from one("clamp from", lambda x: x.clamp(min=0.3), *some)
    yield from one("clamp to", lambda x: x.clamp_max(0.3), *some)
    yield "clamp from", lambda x: x.clamp(min=0.3), {"x": torch.tensor([-1e300, 1e300], dtype=torch.float64)}
    for name, function in (
        ("mish", F.mish),
        ("hardswish", F.hardswish),
        ("hardsigmoid", lambda x: F.relu6(x + 3) / 6),  # F.hardsigmoid's gradient has 1/6 as a float32
        ("relu6", F.relu6),
        ("selu", F.selu),
        ("celu", lambda x: F.celu(x, 0.75)),
        ("softsign", F.softsign),
        ("tanhshrink", F.tanhshrink),
        ("hardshrink", lambda x: F.hardshrink(x, 0.6)),
        ("softshrink", lambda x: F.softshrink(x, 0.6)),
        ("hardtanh", lambda x: F.hardtanh(x, -0.6, 1.1)),
        ("threshold", lambda x: F.threshold(x, 0.3, -2)),
        ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh")),
    ):
        of_x = lambda x: function(x)
        yield from one(name, of_x, *some)
        yield name, of_x, {"x": random(9) * 4}
        if name in ("mish", "gelu_tanh"):
            yield name, of_x, {"x": torch.tensor([-400.0, -30, -8, 8, 30, 400], dtype=torch.float64)}
    yield from one("glu", lambda x: F.glu(x, 1), (3, 4), (2, 6, 3))
    yield from one("softmin", lambda x: F.softmin(x, 1), (3, 4))

    zeros = torch.tensor([[2.0, 0, 3, -1], [0, 0, 5, 2], [1, 2, 3, 4]], dtype=torch.float64)
    product = lambda x: torch.prod(x)
    yield from one("prod", product, *some)
    yield "prod", product, {"x": zeros}
    yield "prod", product, {"x": zeros[2]}
    yield "prod", product, {"x": torch.tensor([3, -5, 7])}
    yield from one("prod 1", lambda x: torch.prod(x, 1), (3, 5), (2, 6, 3), (2, 0), (0, 2))
    yield from one("prod 0 keep", lambda x: torch.prod(x, 0, keepdim=True), (3, 5), (4, 2))
    yield from one("cumprod 0", lambda x: torch.cumprod(x, 0), (3, 5), (7,), (0, 3), ())
    yield from one("cumprod 1", lambda x: torch.cumprod(x, 1), (3, 5), (2, 6, 3), (2, 0))
    for name, function in (("prod 1", lambda x: torch.prod(x, 1)), ("cumprod 1", lambda x: torch.cumprod(x, 1))):
        yield name, function, {"x": zeros}

    yield from one("flip", lambda x: x.flip(0, -1), (3, 5), (2, 3, 4), (2, 0))
    yield from one("roll", lambda x: x.roll((1, -7), (0, 1)), (3, 5), (2, 4, 3), (2, 0))
    yield from one("roll all", lambda x: x.roll(-4), (3, 5), (2,))
    for indexing in ("ij", "xy"):
        grid = lambda a, b, c: torch.stack(torch.meshgrid(a, b, c, indexing=indexing))
        yield f"meshgrid {indexing}", grid, {"a": random(3), "b": random(4), "c": random(2)}
    yield from one("unfold of rows", lambda x: x.unfold(1, 3, 2), (2, 7), (2, 3, 2), (1, 8, 2, 2))
    columns = lambda x: F.unfold(x, (2, 3), dilation=(2, 1), padding=(1, 0), stride=(1, 2))
    yield from one("unfold", columns, (2, 3, 4, 5), (1, 1, 3, 3))
    yield from one("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), (2, 8, 2, 3), (4, 1, 2))
    yield from one("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), (2, 2, 4, 6), (1, 2, 2))
    yield from one("pad", lambda x: F.pad(x, (-1, 2, 1, -2), value=0.5), (3, 4), (2, 3, 5), (1, 2, 2, 1))
    yield from one("pad away", lambda x: F.pad(x, (-1, -2, 0, -1)), (3, 4), (2, 3, 3))
    images = ((2, 2, 3, 4), (1, 3, 5, 3))
    yield from one("pad reflect", lambda x: F.pad(x, (2, 1, 0, 2), mode="reflect"), *images)
    yield from one("pad replicate", lambda x: F.pad(x, (3, 0, 1, 5), mode="replicate"), *images)
    yield from one("pad circular", lambda x: F.pad(x, (3, 1, 0, 3), mode="circular"), *images)
    yield from one("pad replicate less", lambda x: F.pad(x, (2, -1, -1, 2), mode="replicate"), *images)
    for left, right in (
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 4)),
        ((2, 4, 3), (3,)),
        ((3,), (2, 3, 4)),
        ((2, 3, 4, 5), (2, 3, 5, 2)),
        ((2, 1, 4, 5), (3, 5, 2)),
        ((4, 5), (2, 3, 5, 2)),
        ((2, 3, 4, 5), (5, 2)),
        ((1, 1, 2, 3), (3, 2)),
        ((1, 4, 5), (3, 5, 2)),
        ((0, 2, 4, 5), (5, 2)),
    ):
        yield "matmul", lambda a, b: torch.matmul(a, b), {"a": random(*left), "b": random(*right)}
    conv = lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1)
    yield "conv2d of one", conv, {"x": random(2, 5, 4), "w": random(3, 2, 3, 3), "b": random(3)}
    back = lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2)
    yield "conv_transpose2d of one", back, {"x": random(2, 3, 2), "w": random(2, 3, 2, 2), "b": random(3)}
    yield "conv1d of one", lambda x, w: F.conv1d(x, w), {"x": random(2, 5), "w": random(3, 2, 3)}
    for size in ((5, 6), (7, 4), (4, 5)):
        x = random(1, 2, *size)
        for kernel, stride, padding in ((2, 2, 0), (3, 2, 1), (2, 3, 1), (3, 3, 0)):
            key = f"{kernel} {stride} {padding}"
            yield f"max_pool2d ceil {key}", lambda x: F.max_pool2d(x, kernel, stride, padding, ceil_mode=True), {"x": x}
            for count in (True, False):
                average = lambda x: F.avg_pool2d(x, kernel, stride, padding, ceil_mode=True, count_include_pad=count)
                yield f"avg_pool2d ceil {key} {int(count)}", average, {"x": x}

    instance = lambda x, w, b: F.instance_norm(x, weight=w, bias=b, eps=1e-3)
    for shape in ((2, 3, 4, 2), (3, 2, 5)):
        yield "instance_norm", instance, {"x": random(*shape), "w": random(shape[1]), "b": random(shape[1])}
    yield from one("normalize", lambda x: F.normalize(x, dim=-1), (3, 5), (2, 3, 4))
    for name, function in (
        ("cosine_similarity", lambda a, b: F.cosine_similarity(a, b, -1)),
        ("pairwise_distance", lambda a, b: F.pairwise_distance(a, b, 3.0, keepdim=True)),
    ):
        yield name, function, {"a": random(3, 5), "b": random(3, 5)}
    attend = F.scaled_dot_product_attention
    qkv = lambda *batch: {"q": random(*batch, 3, 4), "k": random(*batch, 5, 4), "v": random(*batch, 5, 2)}
    plain = lambda q, k, v: attend(q, k, v)
    yield "attention", plain, qkv()
    yield "attention", plain, qkv(2, 3)
    yield "attention causal", lambda q, k, v: attend(q, k, v, is_causal=True), qkv(2)
    added = lambda q, k, v, m: attend(q, k, v, attn_mask=m, scale=0.25)
    yield "attention with added", added, qkv(2) | {"m": random(3, 5)}
    masked = lambda q, k, v, m: attend(q, k, v, attn_mask=m > 0)
    yield "attention masked", masked, qkv(2) | {"m": torch.tensor([[1, 0, 1, 1, 0], [0, 0, 1, 0, 0], [1] * 5])}

    for reduction in ("none", "mean", "sum"):
        k = {"reduction": reduction}
        for shape in ((3, 5), (4,)):
            x, p = random(*shape), probabilities(*shape)
            inputs = {"x": x, "t": probabilities(*shape), "w": random(shape[-1]).abs() + 0.25}
            yield f"bce weighted {reduction}", lambda x, t, w: F.binary_cross_entropy(x, t, w.detach(), **k), inputs | {"x": p}
            logits = lambda x, t, w, p: F.binary_cross_entropy_with_logits(x, t, w.detach(), pos_weight=p.detach(), **k)
            yield f"bce logits weighted {reduction}", logits, inputs | {"p": random(shape[-1]).abs() + 0.5}
            sign = torch.where(random(*shape) > 0, 1, -1)
            hinge = lambda x, s: F.hinge_embedding_loss(x, s, 0.75, **k)
            yield f"hinge_embedding_loss {reduction}", hinge, {"x": x, "s": sign}
            at_the_margin = {"x": torch.full(shape, 0.75).double(), "s": -torch.ones(shape).long()}
            yield f"hinge_embedding_loss {reduction}", hinge, at_the_margin
            soft = lambda x, s: F.soft_margin_loss(x, s, **k)
            yield f"soft_margin_loss {reduction}", soft, {"x": x, "s": sign}
            ranking = lambda a, b, s: F.margin_ranking_loss(a, b, s, 0.25, **k)
            yield f"margin_ranking_loss {reduction}", ranking, {"a": x, "b": random(*shape), "s": sign}
            poisson = lambda x, t: F.poisson_nll_loss(x, t, **k)
            yield f"poisson_nll_loss {reduction}", poisson, {"x": x, "t": inputs["t"]}
            plain = lambda x, t: F.poisson_nll_loss(x, t, log_input=False, **k)
            yield f"poisson_nll_loss of rates {reduction}", plain, {"x": p + 0.5, "t": inputs["t"]}
            gaussian = lambda x, t, v: F.gaussian_nll_loss(x, t, v, eps=0.5, **k)
            variances = random(*shape).abs() + 0.25
            yield f"gaussian_nll_loss {reduction}", gaussian, {"x": x, "t": inputs["t"], "v": variances}
        label = torch.tensor([1, -1, -1, 1])
        cosine = lambda a, b, s: F.cosine_embedding_loss(a, b, s, 0.1, **k)
        yield f"cosine_embedding_loss {reduction}", cosine, {"a": random(4, 3), "b": random(4, 3), "s": label}
        for swap in (False, True):
            triplet = lambda a, p, n: F.triplet_margin_loss(a, p, n, 1.5, swap=swap, **k)
            yield f"triplet_margin_loss {reduction} {int(swap)}", triplet, {n: random(4, 3) for n in "apn"}
        for shape in ((4, 3), (2, 3, 2, 2), (3,)):
            target = torch.softmax(random(*shape), 0 if len(shape) == 1 else 1)
            target = (target * 64).round() / 64
            inputs = {"x": random(*shape), "t": target, "w": random(3).abs() + 0.25}
            classes = lambda x, t, w: F.cross_entropy(x, t, w, label_smoothing=0.1, **k)
            if len(shape) > 1:
                classes = lambda x, t, w: F.cross_entropy(x, t, w.detach(), label_smoothing=0.1, **k)
                yield f"cross_entropy of probabilities {reduction}", classes, inputs
            else:
                yield f"cross_entropy of probabilities {reduction} 1", lambda x, t: F.cross_entropy(x, t, **k), {n: inputs[n] for n in "xt"}

    yield module(nn.InstanceNorm2d(3, affine=True), x=random(2, 3, 2, 2), weight=random(3), bias=random(3))
    yield module(nn.ReflectionPad2d((2, 1, 0, 1)), x=random(1, 2, 3, 3))
    yield module(nn.ReplicationPad1d(2), x=random(1, 2, 3))
    yield module(nn.CircularPad2d(1), x=random(1, 2, 3, 3))
    yield module(nn.ZeroPad2d((1, -1, 0, 2)), x=random(1, 2, 3, 3))
    yield module(nn.ConstantPad2d(1, 1.5), x=random(1, 2, 3, 3))
    yield module(nn.PixelShuffle(3), x=random(1, 9, 2, 2))
    yield module(nn.Unfold(2, stride=2), x=random(1, 2, 4, 4))
    yield module(nn.MaxPool2d(2, ceil_mode=True), x=random(1, 2, 3, 5))
    yield module(nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), x=random(1, 2, 4, 5))
    yield module(nn.Hardtanh(-0.5, 1.25), x=random(7))
    yield module(nn.GELU("tanh"), x=random(7))
    yield module(nn.Softplus(2), x=random(7))
    yield module(nn.GLU(0), x=random(4, 3))
    yield module(nn.Unflatten(1, (2, -1)), x=random(2, 6, 2))
    yield from recurrent(random)
    yield from attention(random)


def recurrent(random):
    """Layers whose inputs are the gates, which an identity as their weight makes of the module's inputs; then modules."""
    call = torch.func.functional_call
    steps, samples, size = 4, 3, 2
    for reverse in (False, True):
        turned = lambda x: x.flip(0) if reverse else x
        end = f" {int(reverse)}"
        flat = lambda y, *states: torch.cat([turned(y).reshape(-1)] + [s.reshape(-1) for s in states])
        state = {"h": random(samples, size), "c": random(samples, size)}

        def lstm(x, h, c, w):
            weights = {"weight_ih_l0": torch.eye(4 * size).double(), "weight_hh_l0": w}
            y, (h, c) = call(nn.LSTM(4 * size, size, bias=False), weights, (turned(x), (h[None], c[None])))
            return flat(y, h, c)

        yield "lstm_layer" + end, lstm, {"x": random(steps, samples, 4 * size), **state, "w": random(4 * size, size)}

        def gru(x, h, w, b):
            weights = {"weight_ih_l0": torch.eye(3 * size).double(), "weight_hh_l0": w}
            weights |= {"bias_ih_l0": torch.zeros(3 * size).double(), "bias_hh_l0": b}
            y, h = call(nn.GRU(3 * size, size), weights, (turned(x), h[None]))
            return flat(y, h)

        inputs = {"x": random(steps, samples, 3 * size), "h": state["h"]}
        yield "gru_layer" + end, gru, inputs | {"w": random(3 * size, size), "b": random(3 * size)}
        for kind in ("tanh", "relu"):

            def rnn(x, h, w):
                weights = {"weight_ih_l0": torch.eye(size).double(), "weight_hh_l0": w}
                y, h = call(nn.RNN(size, size, nonlinearity=kind, bias=False), weights, (turned(x), h[None]))
                return flat(y, h)

            inputs = {"x": random(steps, samples, size), "h": state["h"], "w": random(size, size) / 2}
            yield f"rnn_layer {kind}" + end, rnn, inputs

    def of_module(name, made, **inputs):
        weights = {key: random(*value.shape) / 4 for key, value in made.state_dict().items()}

        def run(x, h=None, c=None, **weights):
            state = None if h is None else h if c is None else (h, c)
            y, state = call(made, {key: weight.detach() for key, weight in weights.items()}, (x, state))
            return torch.cat([part.reshape(-1) for part in (y, *(state if isinstance(state, tuple) else (state,)))])

        return name, run, inputs | weights

    yield of_module("LSTM", nn.LSTM(3, 2), x=random(4, 2, 3))
    deep = dict(num_layers=2, bidirectional=True, batch_first=True)
    state = {"h": random(4, 2, 2), "c": random(4, 2, 2)}
    yield of_module("LSTM deep", nn.LSTM(3, 2, **deep), x=random(2, 4, 3), **state)
    yield of_module("LSTM of one", nn.LSTM(3, 2, bias=False), x=random(4, 3), h=random(1, 2), c=random(1, 2))
    yield of_module("GRU deep", nn.GRU(3, 2, **deep), x=random(2, 4, 3), h=state["h"])
    yield of_module("RNN", nn.RNN(3, 2, num_layers=2), x=random(4, 2, 3), h=random(2, 2, 2))


def attention(random):
    call = torch.func.functional_call

    def weights_of(made):
        return {key: random(*value.shape) / 4 for key, value in made.state_dict().items()}

    detached = lambda weights: {key: weight.detach() for key, weight in weights.items()}
    for batch_first in (False, True):
        made = nn.MultiheadAttention(4, 2, batch_first=batch_first)

        def attend(q, k, v, pad, mask, **weights):
            y, of = call(made, detached(weights), (q, k, v), {"key_padding_mask": pad > 0, "attn_mask": mask > 0})
            return torch.cat([y.reshape(-1), of.reshape(-1)])

        shape = lambda places: (2, places, 4) if batch_first else (places, 2, 4)
        inputs = {"q": random(*shape(3)), "k": random(*shape(5)), "v": random(*shape(5))}
        inputs |= {"pad": torch.tensor([[0, 0, 1, 0, 0], [0, 0, 0, 0, 1]])}
        inputs |= {"mask": torch.tensor([[0, 0, 0, 1, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]])}
        yield f"MultiheadAttention {int(batch_first)}", attend, inputs | weights_of(made)
    for norm_first in (False, True):
        made = nn.TransformerEncoderLayer(4, 2, 6, 0.0, "gelu", batch_first=True, norm_first=norm_first)

        def encode(x, mask, **weights):
            return call(made, detached(weights), (x,), {"src_mask": mask.double()})

        inputs = {"x": random(2, 3, 4), "mask": torch.tensor([[0, -9, -9], [0, 0, -9], [0, 0, 0]])}
        yield f"TransformerEncoderLayer {int(norm_first)}", encode, inputs | weights_of(made)
    dot = torch.nn.functional.scaled_dot_product_attention
    for some in ([[1, 0, 1, 1, 0], [0] * 5, [1] * 5], [[0] * 5] * 3):  # queries without a key
        inputs = {"q": random(2, 3, 4), "k": random(2, 5, 4), "v": random(2, 5, 2), "m": torch.tensor(some)}
        yield "attention masked", lambda q, k, v, m: dot(q, k, v, attn_mask=m > 0), inputs
    wide = {"q": random(1, 5, 4), "k": random(1, 3, 4), "v": random(1, 3, 2)}
    yield "attention causal", lambda q, k, v: dot(q, k, v, is_causal=True), wide
    apart = {"q": random(2, 1, 3, 4), "k": random(3, 5, 4), "v": random(1, 1, 5, 2)}
    yield "attention", lambda q, k, v: dot(q, k, v), apart
