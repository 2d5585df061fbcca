#!/usr/bin/env python3
"""Writes second_order.json: gradients of losses that contain gradients, from PyTorch in float64.

Four programs, as they are usually written: the gradient penalty of a Wasserstein critic (Gulrajani et al. 2017), the R1
penalty of a discriminator (Mescheder et al. 2018), the product of a Hessian with a vector, and the inner loop of MAML on
sines (Finn et al. 2017). tests/golden/second_order_test.cpp has their twins; weights and inputs are hashed (hashed.py).
"""

import json
import math
from pathlib import Path

import hashed
import torch
from torch.nn import functional as F

torch.set_default_dtype(torch.float64)
torch.use_deterministic_algorithms(True)


def values(name, *shape, scale=1.0):
    return scale * torch.from_numpy(hashed.uniform(name, shape))


def weights(shapes):
    scales = {name: 1 / math.sqrt(max(1, math.prod(shape[1:]))) if len(shape) > 1 else 0.3 for name, shape in shapes.items()}
    return {name: values(name, *shape, scale=scales[name]).requires_grad_() for name, shape in shapes.items()}


def critic(p, x):
    h = F.leaky_relu(F.conv2d(x, p["c1.w"], p["c1.b"], stride=2, padding=1), 0.2)
    h = F.conv2d(h, p["c2.w"], p["c2.b"], stride=2, padding=1)
    h = F.leaky_relu(F.layer_norm(h, [8, 2, 2], p["n.w"], p["n.b"]), 0.2)
    return F.linear(h.flatten(1), p["l.w"], p["l.b"])


CRITIC = {
    "c1.w": (6, 3, 4, 4), "c1.b": (6,), "c2.w": (8, 6, 4, 4), "c2.b": (8,), "n.w": (8, 2, 2), "n.b": (8, 2, 2),
    "l.w": (1, 32), "l.b": (1,),
}


def wgan_gp():
    p = weights(CRITIC)
    real, fake = values("real", 4, 3, 8, 8), values("fake", 4, 3, 8, 8)
    alpha = 0.5 + 0.5 * values("alpha", 4, 1, 1, 1)
    between = (alpha * real + (1 - alpha) * fake).requires_grad_()
    (slope,) = torch.autograd.grad(critic(p, between).sum(), between, create_graph=True)
    penalty = ((slope.flatten(1).norm(2, dim=1) - 1) ** 2).mean()
    loss = critic(p, fake).mean() - critic(p, real).mean() + 10 * penalty
    loss.backward()
    return loss, p


def discriminator(p, x):
    h = torch.tanh(F.group_norm(F.conv2d(x, p["c.w"], p["c.b"], padding=1), 2, p["g.w"], p["g.b"]))
    h = F.conv2d(F.avg_pool2d(h, 2), p["d.w"], None, padding=1)
    h = F.max_pool2d(F.silu(F.batch_norm(h, None, None, p["b.w"], p["b.b"], training=True)), 2)
    return F.linear(h.flatten(1), p["l.w"], p["l.b"])


DISCRIMINATOR = {
    "c.w": (4, 3, 3, 3), "c.b": (4,), "g.w": (4,), "g.b": (4,), "d.w": (6, 4, 3, 3), "b.w": (6,), "b.b": (6,),
    "l.w": (1, 24), "l.b": (1,),
}


def r1():
    p = weights(DISCRIMINATOR)
    real = values("real", 4, 3, 8, 8).requires_grad_()
    score = discriminator(p, real)
    (slope,) = torch.autograd.grad(score.sum(), real, create_graph=True)
    loss = F.softplus(-score).mean() + 5 * slope.square().sum([1, 2, 3]).mean()
    loss.backward()
    return loss, p


def classifier(p, x):
    return F.linear(F.gelu(F.linear(torch.tanh(F.linear(x, p["l1.w"], p["l1.b"])), p["l2.w"], p["l2.b"])), p["l3.w"])


CLASSIFIER = {"l1.w": (7, 5), "l1.b": (7,), "l2.w": (6, 7), "l2.b": (6,), "l3.w": (4, 6)}


def hessian_vector():
    p = weights(CLASSIFIER)
    loss = F.cross_entropy(classifier(p, values("x", 6, 5)), torch.tensor([0, 3, 1, 2, 2, 0]), label_smoothing=0.1)
    first = torch.autograd.grad(loss, list(p.values()), create_graph=True)
    along = sum((g * values("v." + name, *g.shape)).sum() for name, g in zip(p, first))
    products = torch.autograd.grad(along, list(p.values()))
    for weight, product in zip(p.values(), products):
        weight.grad = product
    return along, p


def sine(p, x):
    return F.linear(torch.relu(F.linear(torch.relu(F.linear(x, p["l1.w"], p["l1.b"])), p["l2.w"], p["l2.b"])), p["l3.w"], p["l3.b"])


SINE = {"l1.w": (9, 1), "l1.b": (9,), "l2.w": (8, 9), "l2.b": (8,), "l3.w": (1, 8), "l3.b": (1,)}


def maml():
    p = weights(SINE)
    total = 0
    for task in range(3):
        name = f"task{task}."
        amplitude, phase = 2 + values(name + "amplitude", 1), math.pi * values(name + "phase", 1)
        support, query = values(name + "support", 5, 1, scale=5), values(name + "query", 5, 1, scale=5)
        fast = dict(p)
        for _ in range(2):
            inner = F.mse_loss(sine(fast, support), amplitude * torch.sin(support + phase))
            slopes = torch.autograd.grad(inner, list(fast.values()), create_graph=True)
            fast = {key: weight - 0.05 * slope for (key, weight), slope in zip(fast.items(), slopes)}
        total = total + F.mse_loss(sine(fast, query), amplitude * torch.sin(query + phase))
    loss = total / 3
    loss.backward()
    return loss, p


def main():
    result = {"generator": "tests/golden/make_second_order.py", "torch": torch.__version__.split("+")[0]}
    for program in (wgan_gp, r1, hessian_vector, maml):
        loss, p = program()
        result[program.__name__] = {
            "loss": loss.item(),
            "gradients": {name: weight.grad.flatten().tolist() for name, weight in p.items()},
        }
    path = Path(__file__).parent / "second_order.json"
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
