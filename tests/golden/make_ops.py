#!/usr/bin/env python3
"""Writes ops.json: small cases of operations whose definition is easy to get wrong, computed by PyTorch in float64.

    make_ops.py [--seed TEXT FILE]     with other random inputs into FILE, for tests/golden/parity_pytorch.py

A case is {op, args, inputs, outputs, grads}; arrays are {"shape", "values"} in row order, and null stands for a tensor
that is left out. Where there are grads, backward started from the input "dy". Values have 12 digits.
"""

import itertools
import json
import sys
from pathlib import Path

import hashed
import tensor_ops
import torch
from torch.nn import functional as F

CASES = []
CALLS = itertools.count()
SEED = ""


def array(tensor):
    if tensor is None:
        return None
    values = (tensor.long() if tensor.dtype == torch.bool else tensor).detach().flatten().tolist()
    return {"shape": list(tensor.shape), "values": [v if isinstance(v, int) else float(f"{v:.12g}") for v in values]}


def add(op, args, inputs, outputs, grads=None):
    case = {"op": op, "args": args}
    for name, tensors in (("inputs", inputs), ("outputs", outputs), ("grads", grads or {})):
        case[name] = {key: array(tensor) for key, tensor in tensors.items()}
    CASES.append(case)


def random(*shape):
    """Values in [-2, 2] with few digits, so that rounding them to 12 changes nothing; others at every call."""
    values = torch.from_numpy(hashed.uniform(f"random {SEED}{next(CALLS)}", shape))
    return (values * 32).round() / 16


def differentiate(op, args, function, inputs, also=lambda: {}):
    """Adds the case y = function(**inputs): every floating input gets a gradient."""
    leaves = {}
    for name, tensor in inputs.items():
        floating = tensor is not None and tensor.is_floating_point() and not name.startswith("running")
        leaves[name] = tensor.clone().requires_grad_() if floating and name != "class_weight" else tensor
    y = function(**leaves)
    if not isinstance(y, torch.Tensor):  # values, and what has no gradient
        values, others = y
        y, also = values, lambda: {"others": others}
    if not y.is_floating_point():
        return add(op, args, inputs, {"y": y})
    dy = random(*y.shape)
    y.backward(dy)
    grads = {name: t.grad for name, t in leaves.items() if t is not None and t.grad is not None}
    add(op, args, inputs | {"dy": dy}, {"y": y, **also()}, grads)


def losses():
    x, weight = random(5, 4), random(4).abs() + 0.25
    target = torch.tensor([2, 0, 3, 1, 3])
    some_ignored = torch.tensor([2, -7, 3, -7, 0])
    for reduction in ("none", "mean", "sum"):
        for class_weight, smoothing, labels, ignore in (
            (None, 0.0, target, -100),
            (weight, 0.0, target, -100),
            (None, 0.1, target, -100),
            (weight, 0.1, some_ignored, -7),
        ):
            args = {"reduction": reduction, "ignore_index": ignore}

            def cross_entropy(x, target, class_weight):
                return F.cross_entropy(
                    x, target, class_weight, ignore_index=ignore, reduction=reduction, label_smoothing=smoothing
                )

            def nll(x, target, class_weight):
                return F.nll_loss(x, target, class_weight, ignore_index=ignore, reduction=reduction)

            inputs = {"x": x, "target": labels, "class_weight": class_weight}
            differentiate("cross_entropy", args | {"label_smoothing": smoothing}, cross_entropy, inputs)
            if not smoothing or class_weight is not None:
                inputs["x"] = (torch.log_softmax(x, 1) * 1024).round() / 1024
                differentiate("nll_loss", args, nll, inputs)
    pixels = {"x": random(2, 3, 2, 2), "target": torch.tensor([[[0, 2], [1, -100]], [[1, 1], [2, 0]]])}
    differentiate("cross_entropy", {"reduction": "mean"}, lambda x, target: F.cross_entropy(x, target), pixels)

    for reduction in ("none", "mean", "sum"):
        x = torch.tensor([-800.0, -3.0, -0.5, 0.0, 0.25, 40.0, 800.0], dtype=torch.float64)
        target = torch.tensor([0.0, 1.0, 0.25, 0.5, 1.0, 0.0, 1.0], dtype=torch.float64)

        def bce(x):
            return F.binary_cross_entropy_with_logits(x, target, reduction=reduction)

        differentiate("binary_cross_entropy_with_logits", {"reduction": reduction}, bce, {"x": x})
        CASES[-1]["inputs"]["target"] = array(target)


def norms():
    for momentum, eps, training in ((0.1, 1e-5, True), (0.3, 1e-3, True), (0.1, 1e-5, False)):
        mean, var = random(3), random(3).abs() + 0.5
        inputs = {"x": random(2, 3, 2, 3) * 2 + 1, "weight": random(3), "bias": random(3)}
        inputs |= {"running_mean": mean, "running_var": var}
        new_mean, new_var = mean.clone(), var.clone()

        def batch_norm(x, weight, bias, running_mean, running_var):
            return F.batch_norm(x, new_mean, new_var, weight, bias, training, momentum, eps)

        args = {"momentum": momentum, "eps": eps, "training": training}
        also = lambda: {"running_mean": new_mean, "running_var": new_var}
        differentiate("batch_norm", args, batch_norm, inputs, also)

        new_mean, new_var = mean.clone(), var.clone()

        def fused(x, weight, bias, running_mean, running_var, residual):
            return F.relu(F.batch_norm(x, new_mean, new_var, weight, bias, training, momentum, eps) + residual)

        inputs["residual"] = random(2, 3, 2, 3)
        differentiate("batch_norm_add_relu", args, fused, inputs, also)

    for shape, normalized in (((3, 5), (5,)), ((2, 3, 4), (3, 4)), ((2, 2, 3), (3,))):
        args = {"normalized_shape": list(normalized), "eps": 1e-5}

        def layer_norm(x, weight, bias):
            return F.layer_norm(x, normalized, weight, bias, 1e-5)

        x = random(*shape) * 3 + 2
        differentiate(
            "layer_norm", args, layer_norm, {"x": x, "weight": random(*normalized), "bias": random(*normalized)}
        )
        differentiate("layer_norm", args, layer_norm, {"x": x, "weight": None, "bias": None})


def convolutions():
    for stride, padding, dilation, groups, bias in (
        ((1, 1), (0, 0), (1, 1), 1, True),
        ((2, 1), (1, 2), (1, 2), 1, False),
        ((2, 3), (0, 1), (2, 1), 2, True),
    ):
        args = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        inputs = {"x": random(1, 4, 6, 5), "w": random(4, 4 // groups, 3, 2), "b": random(4) if bias else None}
        differentiate("conv2d", args, lambda x, w, b: F.conv2d(x, w, b, stride, padding, dilation, groups), inputs)

    for stride, padding, output_padding, dilation, groups, bias in (
        ((1, 1), (0, 0), (0, 0), (1, 1), 1, True),
        ((2, 2), (1, 1), (1, 1), (1, 1), 1, True),
        ((2, 3), (1, 0), (0, 2), (2, 1), 2, False),
        ((1, 2), (2, 1), (0, 1), (2, 2), 1, True),
        ((3, 1), (0, 1), (2, 0), (1, 2), 2, True),
    ):
        args = {"stride": stride, "padding": padding, "output_padding": output_padding}
        args |= {"dilation": dilation, "groups": groups}
        inputs = {"x": random(1, 4, 3, 3), "w": random(4, 2, 3, 2), "b": random(2 * groups) if bias else None}

        def transpose(x, w, b):
            return F.conv_transpose2d(x, w, b, stride, padding, output_padding, groups, dilation)

        differentiate("conv_transpose2d", args, transpose, inputs)


def pools():
    for size, output in (((5, 7), (3, 4)), ((4, 4), (1, 1)), ((3, 2), (5, 3)), ((6, 6), (2, 3))):
        args = {"output_size": output}
        differentiate(
            "adaptive_avg_pool2d", args, lambda x: F.adaptive_avg_pool2d(x, output), {"x": random(1, 2, *size)}
        )

    ties = random(1, 2, 6, 6).round() - 1  # whole numbers: many windows have equal maxima
    for kernel, stride, padding in (((2, 2), (2, 2), (0, 0)), ((3, 3), (2, 2), (1, 1)), ((3, 2), (1, 2), (1, 0))):
        args = {"kernel": kernel, "stride": stride, "padding": padding}
        differentiate("max_pool2d", args, lambda x: F.max_pool2d(x, kernel, stride, padding), {"x": ties})
        for count in (True, False):
            with_count = args | {"count_padding": count}

            def average(x):
                return F.avg_pool2d(x, kernel, stride, padding, count_include_pad=count)

            differentiate("avg_pool2d", with_count, average, {"x": random(1, 2, 6, 6)})


def elementwise():
    x = torch.tensor([-40.0, -6.0, -1.5, -0.75, -1e-3, 0.0, 1e-3, 0.5, 1.0, 2.5, 6.0, 40.0], dtype=torch.float64)
    differentiate("gelu", {}, lambda x: F.gelu(x), {"x": x})
    differentiate("silu", {}, lambda x: F.silu(x), {"x": x})
    differentiate("sigmoid", {}, lambda x: torch.sigmoid(x), {"x": x})
    differentiate("log_softmax", {}, lambda x: torch.log_softmax(x, 1), {"x": torch.stack([x, x.flip(0) * 20])})
    differentiate("var", {"correction": 1}, lambda x: x.var(dim=1, correction=1), {"x": random(3, 5) + 100})


def tensor_functions():
    for op, function, inputs in tensor_ops.rows(random):
        differentiate(op, {}, function, inputs)


def steps(op, make, args, gradient=lambda step: random(4)):
    parameter = random(4).requires_grad_()
    inputs = {"param": parameter.clone()}
    outputs = {}
    optimizer = make([parameter], **args)
    for step in range(3):
        parameter.grad = gradient(step)
        inputs[f"grad{step}"] = parameter.grad.clone()
        optimizer.step()
        outputs[f"param{step}"] = parameter.clone()
    args = dict(args)
    if "betas" in args:
        args["beta1"], args["beta2"] = args.pop("betas")
    add(op, args, inputs, outputs)


def ascents():
    """maximize, with all that is added to a gradient; and amsgrad, with gradients that fall, so that it tells."""
    o, decay = torch.optim, {"weight_decay": 0.1}
    for args in ({}, {"momentum": 0.9, "nesterov": True} | decay, {"momentum": 0.8, "dampening": 0.25} | decay):
        steps("sgd", o.SGD, {"lr": 0.125, "maximize": True} | args)
    steps("rmsprop", o.RMSprop, {"lr": 0.01, "momentum": 0.5, "centered": True, "maximize": True} | decay)
    steps("adagrad", o.Adagrad, {"lr": 0.125, "maximize": True} | decay)
    steps("adadelta", o.Adadelta, {"lr": 1.0, "maximize": True} | decay)
    falling = lambda step: random(4) / 8**step
    for args in ({"amsgrad": True}, {"maximize": True}, {"amsgrad": True, "maximize": True, "betas": (0.8, 0.5)}):
        for name, make in (("adam", o.Adam), ("adamw", o.AdamW)):
            steps(name, make, {"lr": 0.01} | decay | args, falling)
    steps("adam", o.Adam, {"lr": 0.01, "decoupled_weight_decay": True, "amsgrad": True} | decay, falling)


def optimizers():
    for args in (
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "dampening": 0.5},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
        {"momentum": 0.8, "dampening": 0.25, "weight_decay": 0.1},
        {"weight_decay": 0.1},
    ):
        steps("sgd", torch.optim.SGD, {"lr": 0.125} | args)
    for args in (
        {},
        {"alpha": 0.8, "eps": 1e-4, "weight_decay": 0.1},
        {"momentum": 0.9},
        {"centered": True},
        {"momentum": 0.5, "centered": True, "weight_decay": 0.1},
    ):
        steps("rmsprop", torch.optim.RMSprop, {"lr": 0.01} | args)
    for args in ({}, {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5, "eps": 1e-4}):
        steps("adagrad", torch.optim.Adagrad, {"lr": 0.125} | args)
    for args in ({}, {"rho": 0.8, "eps": 1e-4, "weight_decay": 0.1}):
        steps("adadelta", torch.optim.Adadelta, {"lr": 1.0} | args)
    for args in ({}, {"betas": (0.8, 0.95), "eps": 1e-4}, {"weight_decay": 0.1}):
        steps("adam", torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.0} | args)
        steps("adamw", torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.01} | args)

    # Rosenbrock's function, whose valley bends.
    for args in ({"lr": 0.1, "max_iter": 5}, {"line_search_fn": "strong_wolfe"}, {"history_size": 2, "max_iter": 4, "line_search_fn": "strong_wolfe"}):
        x = torch.tensor([-1.5, 2.0], dtype=torch.float64, requires_grad=True)
        inputs, outputs = {"param": x.detach().clone()}, {}
        optimizer = torch.optim.LBFGS([x], **args)

        def closure():
            optimizer.zero_grad()
            loss = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
            loss.backward()
            return loss

        for step in range(3):
            optimizer.step(closure)
            outputs[f"param{step}"] = x.detach().clone()
        add("lbfgs", args, inputs, outputs)

    gradients = {"g0": random(3), "g1": random(2, 2)}
    parameters = [torch.zeros_like(g, requires_grad=True) for g in gradients.values()]
    for parameter, gradient in zip(parameters, gradients.values()):
        parameter.grad = gradient.clone()
    torch.nn.utils.clip_grad_value_(parameters, 0.5)
    add("clip_grad_value", {"value": 0.5}, gradients, {n: p.grad for n, p in zip(gradients, parameters)})

    for max_norm in (1.0, 1000.0):
        gradients = {"g0": random(3), "g1": random(2, 2)}
        parameters = [torch.zeros_like(g, requires_grad=True) for g in gradients.values()]
        for parameter, gradient in zip(parameters, gradients.values()):
            parameter.grad = gradient.clone()
        norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm)
        clipped = {name: parameter.grad for name, parameter in zip(gradients, parameters)}
        add("clip_grad_norm", {"max_norm": max_norm}, gradients, {"norm": norm} | clipped)


def schedules():
    from torch.optim import lr_scheduler as s

    def rates(op, args, count, make):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.2, momentum=0.9)
        scheduler = make(optimizer)
        values = []
        for step in range(count):
            values.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if step + 1 < count:
                scheduler.step()
        add(op, {"base_lr": 0.2} | args, {}, {"lr": torch.tensor(values, dtype=torch.float64)})

    rates("StepLR", {"step_size": 3, "gamma": 0.5}, 10, lambda o: s.StepLR(o, 3, 0.5))
    rates("LambdaLR", {}, 5, lambda o: s.LambdaLR(o, lambda step: 1 / (1 + step)))
    rates("ExponentialLR", {"gamma": 0.7}, 5, lambda o: s.ExponentialLR(o, 0.7))
    rates("ConstantLR", {"factor": 0.25, "total_iters": 3}, 6, lambda o: s.ConstantLR(o, 0.25, 3))
    rates("PolynomialLR", {"total_iters": 4, "power": 1.5}, 7, lambda o: s.PolynomialLR(o, 4, 1.5))
    rates("MultiplicativeLR", {}, 5, lambda o: s.MultiplicativeLR(o, lambda step: 1 / (1 + step)))
    for args in ({"t_0": 3, "t_mult": 1, "eta_min": 0.01}, {"t_0": 2, "t_mult": 2, "eta_min": 0}):
        restarts = lambda o: s.CosineAnnealingWarmRestarts(o, args["t_0"], args["t_mult"], args["eta_min"])
        rates("CosineAnnealingWarmRestarts", args, 16, restarts)
    for mode, gamma in (("triangular", 1.0), ("triangular2", 1.0), ("exp_range", 0.95)):
        args = {"max_lr": 0.5, "up": 3, "down": 2, "mode": mode, "gamma": gamma}
        cyclic = lambda o: s.CyclicLR(o, 0.2, 0.5, 3, 2, mode, gamma, cycle_momentum=False)
        rates("CyclicLR", args, 13, cyclic)
    measures = [1.0, 0.8, 0.8, 0.7999, 0.79995, 0.81, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.1, 0.2, 0.2, 0.2, 0.2]
    for args in (
        {"patience": 1},
        {"patience": 2, "factor": 0.5, "cooldown": 2, "min_lr": 0.02},
        {"patience": 0, "threshold": 0.15, "threshold_mode": "abs", "mode": "max", "factor": 0.9},
        {"patience": 1, "threshold": 0.1, "negative": True},
        {"patience": 1, "threshold": 0.1, "negative": True, "mode": "max"},
    ):
        sign = -1 if args.get("negative") else 1
        signed = [sign * measure for measure in measures]
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.2)
        own = {key: value for key, value in args.items() if key != "negative"}
        plateau, values = s.ReduceLROnPlateau(optimizer, **own), []
        for measure in signed:
            plateau.step(measure)
            values.append(optimizer.param_groups[0]["lr"])
        add("plateau", args, *({k: torch.tensor(v, dtype=torch.float64)} for k, v in (("measures", signed), ("lr", values))))

    rates("CosineAnnealingLR", {"t_max": 8, "eta_min": 0.01}, 12, lambda o: s.CosineAnnealingLR(o, 8, 0.01))
    rates("LinearLR", {"start_factor": 0.25, "total_iters": 4}, 7, lambda o: s.LinearLR(o, 0.25, 1.0, 4))
    for args in (
        {"max_lr": 0.5, "total_steps": 20},
        {"max_lr": 0.1, "total_steps": 13, "pct_start": 0.4, "div_factor": 10},
    ):
        rates("OneCycleLR", args, args["total_steps"], lambda o: s.OneCycleLR(o, cycle_momentum=False, **args))
    rates(
        "warm_up_then_cosine",
        {"start_factor": 0.1, "total_iters": 3, "t_max": 9},
        13,
        lambda o: s.SequentialLR(o, [s.LinearLR(o, 0.1, 1.0, 3), s.CosineAnnealingLR(o, 9)], milestones=[3]),
    )


def packed():
    """Sequences of different lengths: all that a module gives, and the gradients of x and of the first states."""
    from torch.nn.utils import rnn

    def of_module(name, make, lengths, sort, state=(), **options):
        module = make(3, 2, **options).double()
        weights = {key: random(*value.shape) / 4 for key, value in module.state_dict().items()}
        module.load_state_dict(weights)
        first = options.get("batch_first", False)

        def run(x, **states):
            states = tuple(states.values())
            given = rnn.pack_padded_sequence(x, torch.tensor(lengths), first, enforce_sorted=sort)
            y, states = module(given, (states[0] if len(states) == 1 else states) if states else None)
            y, again = rnn.pad_packed_sequence(y, first, padding_value=0.5, total_length=6)
            assert again.tolist() == lengths
            return torch.cat([s.reshape(-1) for s in (y, *(states if isinstance(states, tuple) else (states,)))])

        n = len(lengths)
        inputs = {"x": random(n, 5, 3) if first else random(5, n, 3)}
        directions = (1 + options.get("bidirectional", False)) * options.get("num_layers", 1)
        inputs |= {key: random(directions, n, 2) for key in state}
        before = len(CASES)
        differentiate(f"packed {name}", {"sorted": sort, "lengths": lengths}, run, inputs)
        CASES[before]["inputs"] |= {key: array(value) for key, value in weights.items()}

    deep = {"num_layers": 2, "bidirectional": True}
    n = torch.nn
    of_module("LSTM", n.LSTM, [5, 5, 2], True)
    of_module("LSTM deep", n.LSTM, [2, 5, 1, 4], False, "hc", batch_first=True, **deep)
    of_module("GRU deep", n.GRU, [3, 1, 4], False, "h", **deep)
    of_module("RNN", n.RNN, [1, 4], False, "h", num_layers=2)
    of_module("RNN relu", n.RNN, [4, 4, 1], True, bidirectional=True, nonlinearity="relu")
    of_module("LSTM dropped", n.LSTM, [2, 5, 4], False, num_layers=2, dropout=1.0)

    sequences = {"a": random(2, 3), "b": random(4, 3), "c": random(1, 3)}
    for first in (False, True):
        pad = lambda **s: rnn.pad_sequence(list(s.values()), first, 0.25)
        differentiate("pad_sequence", {"batch_first": first}, pad, sequences)
    pack = lambda **s: rnn.pack_sequence(list(s.values()), enforce_sorted=False).data
    differentiate("pack_sequence", {"batch_sizes": [3, 2, 1, 1]}, pack, sequences)


def main():
    global SEED
    path = Path(__file__).with_name("ops.json")
    if sys.argv[1:2] == ["--seed"]:
        SEED, path = sys.argv[2] + " ", Path(sys.argv[3])
    for part in (losses, norms, convolutions, pools, elementwise, optimizers, schedules, tensor_functions, ascents, packed):
        part()
    cases = ",\n".join(json.dumps(case, separators=(",", ":")) for case in CASES)
    head = f'"generator":"tests/golden/make_ops.py","torch":"{torch.__version__.split("+")[0]}"'
    path.write_text(f'{{{head},"cases":[\n{cases}\n]}}\n')
    json.loads(path.read_text())
    print(f"{path}: {path.stat().st_size} bytes, {len(CASES)} cases", file=sys.stderr)


if __name__ == "__main__":
    main()
