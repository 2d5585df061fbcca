#!/usr/bin/env python3
"""The recipes of `ringgrad train --preset speedrun` in PyTorch: the peer of bench/speedrun.py.

    speedrun_pytorch.py mnist|cifar10 FOLDER [--seed S] [--epochs N]     prints {"test_accuracy": …}

FOLDER holds the data set's files, unpacked. Images stay in memory as tensors; channels_last, fp32.
"""

import argparse
import json
import math
import os
import sys
from pathlib import Path

sys.dont_write_bytecode = True

import numpy
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent))
from mnist_pytorch import FusedAdam, normalised, one_cycle, read_split

CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def read_cifar(files):
    rows = torch.from_numpy(numpy.concatenate([numpy.fromfile(f, numpy.uint8).reshape(-1, 3073) for f in files]))
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (CIFAR_MEAN, CIFAR_STD))
    images = (rows[:, 1:].reshape(-1, 3, 32, 32).float() / 255 - mean) / std
    return images.to(memory_format=torch.channels_last), rows[:, 0].long()


# ---- MNIST: the network of github.com/tuomaso/train_mnist_fast, and models/speedrun.h's recipe ---------------------------

def shifted_digits(images):
    """Returns [N, 1, 28, 28] of bytes, each moved by up to two pixels; the rest is black."""
    rows, columns = (torch.arange(28) + torch.randint(0, 5, (len(images), 1)) for _ in range(2))
    padded = F.pad(images[:, 0], (2, 2, 2, 2))
    return padded[torch.arange(len(images)).view(-1, 1, 1), rows.unsqueeze(2), columns.unsqueeze(1)].unsqueeze(1)


def digit_views(model, x):
    padded = F.pad(x, (1, 1, 1, 1), mode="reflect")
    return model(x) + sum(model(padded[:, :, y:y + 28, x:x + 28]) for y, x in ((0, 1), (2, 1), (1, 0), (1, 2)))


def mnist(folder, seed, epochs):
    images, labels = read_split(folder, "train")
    test_images, test_labels = read_split(folder, "t10k")
    model = nn.Sequential(nn.Conv2d(1, 16, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(16, 48, 3), nn.MaxPool2d(2), nn.ReLU(),
                          nn.Flatten(), nn.Linear(1200, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = FusedAdam(list(model.parameters()), None, 0)
    optimizer.betas = (0.7, 0.9)
    per_epoch = len(images) // 128
    steps = epochs * per_epoch if epochs > 1 else per_epoch // 2
    for step in range(steps):
        if step % per_epoch == 0:
            order = torch.randperm(len(images))
        batch = order[step % per_epoch * 128:][:128]
        x = shifted_digits(images[batch]) if epochs > 1 else images[batch]
        loss = F.cross_entropy(model(normalised(x)), labels[batch], label_smoothing=0.1)
        model.zero_grad(set_to_none=True)
        loss.backward()
        with torch.no_grad():
            optimizer.step(one_cycle(0.01, step, steps))
    answer = digit_views if epochs > 1 else lambda model, x: model(x)
    with torch.inference_mode():
        return sum((answer(model, normalised(x)).argmax(1) == y).sum().item()
                   for x, y in zip(test_images.split(1000), test_labels.split(1000))) / len(test_images)


# ---- CIFAR-10: airbench94_muon, github.com/KellerJordan/cifar10-airbench ---------------------------------------------

class Group(nn.Module):
    def __init__(self, into, out):
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(i, out, 3, padding=1, bias=False) for i in (into, out))
        self.norm1, self.norm2 = (nn.BatchNorm2d(out, eps=1e-12, momentum=0.4) for _ in range(2))
        for conv in (self.conv1, self.conv2):
            nn.init.dirac_(conv.weight.data[:conv.weight.size(1)])
        for norm in (self.norm1, self.norm2):
            norm.weight.requires_grad_(False)

    def forward(self, x):
        return F.gelu(self.norm2(self.conv2(F.gelu(self.norm1(F.max_pool2d(self.conv1(x), 2))))))


class Airbench(nn.Module):
    def __init__(self):
        super().__init__()
        self.whiten = nn.Conv2d(3, 24, 2)
        self.whiten.weight.requires_grad_(False)
        self.groups = nn.Sequential(Group(24, 64), Group(64, 256), Group(256, 256))
        self.head = nn.Linear(256, 10, bias=False)
        self.head.weight.data /= self.head.weight.data.std()

    def whiten_by(self, images, eps=5e-4):
        patches = F.unfold(images, 2).transpose(1, 2).reshape(-1, 12)
        values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
        filters = vectors.T.reshape(-1, 3, 2, 2) / torch.sqrt(values + eps).view(-1, 1, 1, 1)
        self.whiten.weight.data[:] = torch.cat((filters, -filters))

    def forward(self, x):
        return self.head(F.max_pool2d(self.groups(F.gelu(self.whiten(x))), 3).flatten(1)) / 256


def orthogonalized(g, steps=3):
    x = g / (g.norm() + 1e-7)
    for _ in range(steps):
        a = x @ x.T
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return x


def augmented(images, flips):
    shift = torch.randint(0, 5, (len(images), 2))
    padded = F.pad(images, (2, 2, 2, 2), mode="reflect")
    out = torch.stack([padded[i, :, y:y + 32, x:x + 32] for i, (y, x) in enumerate(shift.tolist())])
    return torch.where(flips.view(-1, 1, 1, 1), out.flip(-1), out).to(memory_format=torch.channels_last)


def by_views(model, x):
    def both(x):
        return model(x) + model(x.flip(-1))

    once = model(x)
    best = once.topk(2).values
    unsure = (best[:, 0] - best[:, 1]).topk((len(x) + 3) // 4, largest=False).indices
    x = x[unsure]
    padded = F.pad(x, (1, 1, 1, 1), mode="reflect")
    itself = once[unsure] + model(x.flip(-1))
    once[unsure] = (2 * itself + both(padded[:, :, :32, :32]) + both(padded[:, :, 2:, 2:])) / 8
    return once


def cifar10(folder, seed, epochs):
    images, labels = read_cifar([folder / f"data_batch_{i}.bin" for i in range(1, 6)])
    test_images, test_labels = read_cifar([folder / "test_batch.bin"])
    model = Airbench().to(memory_format=torch.channels_last)
    model.whiten_by(images[:5000])
    filters = [p for p in model.parameters() if p.dim() == 4 and p.requires_grad]
    norms = [p for n, p in model.named_parameters() if "norm" in n and p.requires_grad]
    wd = 2e-6 * 2000
    sgd = torch.optim.SGD([{"params": p, "lr": lr, "weight_decay": wd / lr} for p, lr in
                           (([model.whiten.bias], 0.053), (norms, 0.053), ([model.head.weight], 0.67))],
                          momentum=0.85, nesterov=True, fused=True)
    rates, momenta = [g["lr"] for g in sgd.param_groups], [torch.zeros_like(p) for p in filters]
    per_epoch = len(images) // 2000
    steps, whitening = epochs * per_epoch, min(3, epochs) * per_epoch
    first = torch.rand(len(images)) < 0.5
    for step in range(steps):
        if step % per_epoch == 0:
            order = torch.randperm(len(images))
        batch = order[step % per_epoch * 2000:][:2000]
        x = augmented(images[batch], first[batch] ^ (step // per_epoch % 2 == 1))
        loss = F.cross_entropy(model(x), labels[batch], label_smoothing=0.2, reduction="sum")
        model.zero_grad(set_to_none=True)
        loss.backward()
        for group, rate, end in zip(sgd.param_groups, rates, (whitening, steps, steps)):
            group["lr"] = rate * max(0, 1 - step / end)
        sgd.step()
        if step + 1 == whitening:
            model.whiten.bias.requires_grad_(False)
        with torch.no_grad():
            for p, buffer in zip(filters, momenta):
                buffer.mul_(0.6).add_(p.grad)
                p.mul_(math.sqrt(len(p)) / p.norm())
                update = orthogonalized((p.grad + 0.6 * buffer).reshape(len(p), -1))
                p.add_(update.view_as(p), alpha=-0.24 * (1 - step / steps))
    model.eval()
    with torch.inference_mode():
        return sum((by_views(model, x).argmax(1) == y).sum().item()
                   for x, y in zip(test_images.split(1000), test_labels.split(1000))) / len(test_images)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=["mnist", "cifar10"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.set_flush_denormal(True)
    torch.manual_seed(arguments.seed)
    train, epochs = (mnist, 1) if arguments.data == "mnist" else (cifar10, 8)
    print(json.dumps({"test_accuracy": train(arguments.folder, arguments.seed, arguments.epochs or epochs)}))


if __name__ == "__main__":
    main()
