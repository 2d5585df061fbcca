#!/usr/bin/env python3
"""The GAN of `ringgrad gan` in PyTorch: the same two networks, optimizers and batches in the same order, with PyTorch's
weights and noise. Prints a line of JSON per epoch: the mean losses.

    gan_pytorch.py DATA_DIR/mnist --epochs 2 --seed 1 --batch 128
"""

import argparse
import json
from pathlib import Path

import numpy
import torch
from torch import nn

PERMUTATION = 0x7065726D75746174  # core/random.h: Purpose::Permutation
MASK = (1 << 32) - 1


def philox(key, counter, lane):
    """Two 64-bit numbers of core/random.h's philox()."""
    k0, k1 = key & MASK, key >> 32
    c0, c1, c2, c3 = counter & MASK, counter >> 32, lane & MASK, lane >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & MASK, (p0 >> 32) ^ c3 ^ k1, p0 & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c0 | c1 << 32, c2 | c3 << 32


def numbers(key, lane):
    counter = 0
    while True:
        yield from philox(key, counter, lane)
        counter += 1


def epoch_order(size, seed, epoch):
    """data/sampler.cpp: the permutation of an epoch. (Lemire's rare rejections are left out: one in 10^14.)"""
    order = list(range(size))
    random = numbers(seed ^ PERMUTATION, epoch)
    for left in range(size, 1, -1):
        other = next(random) * left >> 64
        order[left - 1], order[other] = order[other], order[left - 1]
    return order


def networks(latent=100, width=64):
    generator = nn.Sequential(
        nn.ConvTranspose2d(latent, 2 * width, 7, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(),
        nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        nn.ConvTranspose2d(width, 1, 4, 2, 1, bias=False), nn.Tanh())
    discriminator = nn.Sequential(
        nn.Conv2d(1, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2),
        nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2),
        nn.Conv2d(2 * width, 1, 7, bias=False))
    for network in generator, discriminator:
        for name, weight in network.named_parameters():
            if weight.dim() == 4:
                nn.init.normal_(weight, 0, 0.02)
            elif name.endswith("weight"):
                nn.init.normal_(weight, 1, 0.02)
    return generator, discriminator


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--seed", type=int, default=1)
    o = parser.parse_args()
    raw = numpy.frombuffer((o.folder / "train-images-idx3-ubyte").read_bytes(), numpy.uint8, offset=16)
    images = (torch.from_numpy(raw.copy()).reshape(-1, 1, 28, 28).float() / 255 - 0.5) / 0.5
    torch.manual_seed(o.seed)
    generator, discriminator = networks()
    steps = [torch.optim.Adam(network.parameters(), o.lr, (0.5, 0.999)) for network in (generator, discriminator)]

    def judge(x, real):
        odds = discriminator(x)
        return nn.functional.binary_cross_entropy_with_logits(odds, torch.full_like(odds, float(real)))

    for epoch in range(o.epochs):
        order = epoch_order(len(images), o.seed, epoch)
        sums = [0.0, 0.0]
        batches = len(order) // o.batch
        for begin in range(0, batches * o.batch, o.batch):
            fake = generator(torch.randn(o.batch, 100, 1, 1))
            steps[1].zero_grad()
            told_apart = judge(images[order[begin : begin + o.batch]], True) + judge(fake.detach(), False)
            told_apart.backward()
            steps[1].step()
            steps[0].zero_grad()
            deceived = judge(fake, True)
            deceived.backward()
            steps[0].step()
            sums[0] += told_apart.item()
            sums[1] += deceived.item()
        means = {"epoch": epoch + 1, "discriminator_loss": sums[0] / batches, "generator_loss": sums[1] / batches}
        print(json.dumps(means), flush=True)


if __name__ == "__main__":
    main()
