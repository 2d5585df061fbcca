"""Runs a network with hashed weights in PyTorch: logits, loss, every gradient, and the state after 5 steps of SGD.

This is the protocol of the golden numbers and of parity_pytorch.py; tests/golden/parity_dump.cpp does the same with ringgrad.
"""

import math

import hashed
import networks
import torch

BATCH = 4
STEPS = 5
SGD = {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4}


def load_hashed(model, steady):
    """Overwrites every parameter and buffer with its hashed value."""
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            tensor.copy_(torch.from_numpy(hashed.state(name, tuple(tensor.shape), steady)))
    return model


def batch(network, dtype, count=BATCH):
    _, shape, classes, _ = networks.NETWORKS[network]
    images = torch.from_numpy(hashed.uniform("input", (count, *shape))).to(dtype)
    return images, torch.from_numpy(hashed.labels(count, classes))


def run(network, dtype, steady):
    """name -> tensor: "logits" and "losses" (of each step), "grad.NAME" of the first step, "state.NAME" after the last.
    Batch norm is in training mode."""
    model = load_hashed(networks.build(network).to(dtype), steady).train()
    images, labels = batch(network, dtype)
    optimizer = torch.optim.SGD(model.parameters(), **SGD)
    out = {}
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        logits = model(images)
        loss = torch.nn.functional.cross_entropy(logits, labels)
        loss.backward()
        if step == 0:
            out["logits"] = logits.detach().clone()
            out.update({"grad." + name: p.grad.clone() for name, p in model.named_parameters()})
        losses.append(loss.detach())
        optimizer.step()
    out["losses"] = torch.stack(losses)
    out.update({"state." + name: t.clone() for name, t in model.state_dict().items() if t.is_floating_point()})
    return out


def total_gradient_norm(tensors):
    return math.sqrt(sum(float(t.double().norm()) ** 2 for name, t in tensors.items() if name.startswith("grad.")))


def errors(ours, reference):
    """name -> ‖ours - reference‖ / ‖reference‖. A gradient is measured against at least 1e-3 of the whole gradient:
    some are zero but for rounding, such as that of a bias in front of batch norm."""
    floor = 1e-3 * total_gradient_norm(reference)
    out = {}
    for name, expected in reference.items():
        norm = float(expected.double().norm())
        if name.startswith("grad."):
            norm = max(norm, floor)
        out[name] = float((ours[name].double() - expected.double()).norm()) / norm if norm else 0.0
    return out
