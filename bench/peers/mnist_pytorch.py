#!/usr/bin/env python3
"""Trains the MNIST ConvNet in PyTorch, in the fastest known way on a CPU, with the options of `ringgrad train` and its line
after each epoch. bench/time_to_accuracy.py starts it.

    mnist_pytorch.py DATA_DIR/mnist --epochs 1 --batch 64 --lr 0.05

There is no DataLoader: numpy decodes the images, which stay in memory, and three calls gather and normalise a batch.
torch.optim is not imported, because its import of torch.compile takes as long as that of torch. The step calls its fused
kernel directly. torch.compile itself does not pay: it compiles for longer than the whole training takes.
"""

import argparse
import math
import os
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True

import numpy
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "golden"))
import networks

MEAN, STD = 0.1307, 0.3081


def read_idx(file):
    """The array of bytes in an uncompressed IDX file."""
    data = numpy.fromfile(file, numpy.uint8)
    dimensions = data[3]
    shape = data[4:4 + 4 * dimensions].view(">i4")
    return torch.from_numpy(data[4 + 4 * dimensions:].reshape(*shape))


def read_split(folder, prefix):
    images = read_idx(folder / f"{prefix}-images-idx3-ubyte").unsqueeze(1)
    return images, read_idx(folder / f"{prefix}-labels-idx1-ubyte").long()


def normalised(images):
    return images.float().mul_(1 / (255 * STD)).sub_(MEAN / STD)


def one_cycle(peak, step, steps):
    """torch.optim.lr_scheduler.OneCycleLR's defaults: up to the peak in 30 % of the steps, down to almost nothing."""
    def between(a, b, fraction):
        return b + (a - b) * (1 + math.cos(math.pi * fraction)) / 2

    top = 0.3 * steps - 1
    return between(peak / 25, peak, step / top) if step <= top else between(peak, peak / 25e4, (step - top) / (steps - 1 - top))


class FusedSGD:
    """torch.optim.SGD(fused=True), without its import."""

    def __init__(self, parameters, momentum, weight_decay):
        self.parameters, self.momentum, self.weight_decay = parameters, momentum, weight_decay
        self.buffers = [torch.zeros_like(p) for p in parameters]
        self.first = True

    def step(self, lr):
        torch._fused_sgd_(self.parameters, [p.grad for p in self.parameters], self.buffers, lr=lr, momentum=self.momentum,
                          weight_decay=self.weight_decay, dampening=0, nesterov=False, maximize=False,
                          is_first_step=self.first)
        self.first = False


class FusedAdam:
    """torch.optim.Adam(fused=True), likewise."""

    betas = 0.9, 0.999

    def __init__(self, parameters, _, weight_decay):
        self.parameters, self.weight_decay = parameters, weight_decay
        self.mean, self.square = [[torch.zeros_like(p) for p in parameters] for _ in range(2)]
        self.steps = [torch.zeros(()) for _ in parameters]

    def step(self, lr):
        torch._foreach_add_(self.steps, 1)
        torch._fused_adam_(self.parameters, [p.grad for p in self.parameters], self.mean, self.square, [], self.steps, lr=lr,
                           beta1=self.betas[0], beta2=self.betas[1], weight_decay=self.weight_decay, eps=1e-8, amsgrad=False, maximize=False)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("--label-smoothing", type=float, default=0)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--nchw", action="store_true", help="not channels_last")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main():
    arguments = parse()
    torch.set_num_threads(os.cpu_count())
    torch.set_flush_denormal(True)
    torch.manual_seed(arguments.seed)
    images, labels = read_split(arguments.folder, "train")
    test_images, test_labels = read_split(arguments.folder, "t10k")
    model = networks.build("cnn")
    if not arguments.nchw:
        model = model.to(memory_format=torch.channels_last)
    kind = FusedSGD if arguments.optimizer == "sgd" else FusedAdam
    optimizer = kind(list(model.parameters()), arguments.momentum, arguments.weight_decay)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=arguments.dtype == "bf16")
    per_epoch = math.ceil(len(images) / arguments.batch)
    step = 0
    for epoch in range(arguments.epochs):
        start = time.monotonic()
        model.train()
        for indices in torch.randperm(len(images)).split(arguments.batch):
            with autocast:
                loss = torch.nn.functional.cross_entropy(model(normalised(images[indices])), labels[indices],
                                                         label_smoothing=arguments.label_smoothing)
            model.zero_grad(set_to_none=True)
            loss.backward()
            with torch.no_grad():
                optimizer.step(one_cycle(arguments.lr, step, arguments.epochs * per_epoch))
            step += 1
        seconds = time.monotonic() - start
        model.eval()
        with torch.inference_mode(), autocast:
            correct = sum((model(normalised(x)).argmax(1) == y).sum().item()
                          for x, y in zip(test_images.split(500), test_labels.split(500)))
        print(f"epoch={epoch + 1} step={step} test_acc={correct / len(test_images):.4f} img_s={len(images) / seconds:.0f} "
              f"sec={seconds:.2f}", flush=True)


if __name__ == "__main__":
    main()
