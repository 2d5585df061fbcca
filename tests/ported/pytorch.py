#!/usr/bin/env python3
"""Trains with PyTorch and the programs' settings, and prints a line for each seed: pytorch.py DATA_DIR [PROGRAM] [SEEDS].

DATA_DIR holds digits (`ringgrad data make digits`) and, for the programs on MNIST, mnist. Needs torch.
"""
import gzip
import pathlib
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

DATA = pathlib.Path(sys.argv[1])


def images(name, split, mean=0.1307, std=0.3081):
    """float32 [N, 1, 28, 28] and int64 [N]."""

    def read(what, header):
        path = DATA / name / f"{split}-{what}-ubyte"
        data = path.read_bytes() if path.exists() else gzip.decompress(pathlib.Path(f"{path}.gz").read_bytes())
        return torch.frombuffer(bytearray(data[header:]), dtype=torch.uint8)

    pixels = read("images-idx3", 16).view(-1, 1, 28, 28).float() / 255
    return (pixels - mean) / std, read("labels-idx1", 8).long()


def batches(data, size, drop_last=False):
    x, y = data
    order = torch.randperm(len(x))
    for i in range(0, len(x) - (size - 1 if drop_last else 0), size):
        yield x[order[i : i + size]], y[order[i : i + size]]


def accuracy(model, data):
    model.eval()
    with torch.no_grad():
        return sum((model(x).argmax(1) == y).sum().item() for x, y in batches(data, 1000)) / len(data[0])


def train(model, data, optimizer, size=64, loss=F.cross_entropy, steps=None):
    for step, (x, y) in enumerate(batches(data, size)):
        if step == steps:
            break
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()


def gradient_penalty():
    w, b = torch.linspace(-0.5, 0.6, 12).view(3, 4).requires_grad_(), torch.tensor([0.1, -0.2, 0.3])
    x, target = torch.linspace(0, 1.1, 12).view(3, 4).requires_grad_(), torch.linspace(1, -0.6, 9).view(3, 3)
    loss = F.mse_loss(F.linear(x, w, b), target)
    slope = torch.autograd.grad(loss, x, create_graph=True)[0]
    (loss + (slope.norm(2, 1) - 1).pow(2).mean()).backward()
    return w.grad.flatten().tolist()


def regression():
    weight, bias = torch.randn(4, 1) * 5, torch.randn(1) * 5
    fc, step, loss = nn.Linear(4, 1), 0, 1
    optimizer = torch.optim.SGD(fc.parameters(), 0.1)
    while loss >= 1e-3:
        x = torch.randn(32).unsqueeze(1)
        x = torch.cat([x**i for i in range(1, 5)], 1)
        optimizer.zero_grad()
        output = F.smooth_l1_loss(fc(x), x @ weight + bias)
        output.backward()
        optimizer.step()
        loss, step = output.item(), step + 1
    return step, (fc.weight - weight.t()).abs().max().item()


class Small(nn.Module):
    """The network of mnist, and with `drop` of another kind of dist_mnist."""

    def __init__(self, drop):
        super().__init__()
        self.conv1, self.conv2, self.drop = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5), drop
        self.fc1, self.fc2 = nn.Linear(320, 50), nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.drop(self.conv2(x)), 2))
        x = F.dropout(F.relu(self.fc1(x.reshape(-1, 320))), training=self.training)
        return F.log_softmax(self.fc2(x), 1)


def mnist(name="digits", epochs=6, drop=nn.Dropout2d, size=64):
    model, data = Small(drop()), images(name, "train")
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.5)
    for _ in range(epochs):
        model.train()
        train(model, data, optimizer, size, F.nll_loss)
    return accuracy(model, images(name, "t10k"))


def dist_mnist(name="digits", epochs=6):  # two ranks' batches are one of twice as many, averaged
    return mnist(name, epochs, nn.Dropout, 128)


def mnist_main(name="digits", epochs=1, steps=100):
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10), nn.LogSoftmax(1))  # fmt: skip
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    for _ in range(epochs):
        model.train()
        train(model, images(name, "train"), optimizer, 64, F.nll_loss, steps)
        scheduler.step()
    return accuracy(model, images(name, "t10k"))


def dcgan(steps=150, width=8):
    def up(i, o, *args):
        return nn.ConvTranspose2d(i, o, *args, bias=False)

    def down(i, o, *args):
        return nn.Conv2d(i, o, *args, bias=False)

    w = width
    generator = nn.Sequential(
        up(100, 4 * w, 4), nn.BatchNorm2d(4 * w), nn.ReLU(), up(4 * w, 2 * w, 3, 2, 1), nn.BatchNorm2d(2 * w), nn.ReLU(),
        up(2 * w, w, 4, 2, 1), nn.BatchNorm2d(w), nn.ReLU(), up(w, 1, 4, 2, 1), nn.Tanh())  # fmt: skip
    discriminator = nn.Sequential(
        down(1, w, 4, 2, 1), nn.LeakyReLU(0.2), down(w, 2 * w, 4, 2, 1), nn.BatchNorm2d(2 * w), nn.LeakyReLU(0.2),
        down(2 * w, 4 * w, 4, 2, 1), nn.BatchNorm2d(4 * w), nn.LeakyReLU(0.2), down(4 * w, 1, 3), nn.Sigmoid(),
        nn.Flatten(0))  # fmt: skip
    g_optimizer, d_optimizer = (torch.optim.Adam(m.parameters(), 2e-4, (0.5, 0.5)) for m in (generator, discriminator))
    data, logs = images("digits", "train", 0.5, 0.5), []
    while len(logs) < steps:
        for real, _ in batches(data, 64, drop_last=True):
            discriminator.zero_grad()
            d_real = F.binary_cross_entropy(discriminator(real), torch.empty(64).uniform_(0.8, 1))
            d_real.backward()
            fake = generator(torch.randn(64, 100, 1, 1))
            d_fake = F.binary_cross_entropy(discriminator(fake.detach()), torch.zeros(64))
            d_fake.backward()
            d_optimizer.step()
            generator.zero_grad()
            g_loss = F.binary_cross_entropy(discriminator(fake), torch.ones(64))
            g_loss.backward()
            g_optimizer.step()
            logs.append((d_real.item() + d_fake.item(), g_loss.item(), fake.mean().item()))
            if len(logs) == steps:
                break
    return torch.tensor(logs[-(steps // 4) :]).mean(0).tolist()


def custom_dataset(epochs=5):
    x, y = (t[:4000] for t in images("digits", "train", 0.13, 0.31))
    order = torch.randperm(4000)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10), nn.LogSoftmax(1))  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(epochs):
        model.train()
        train(model, (x[order[:3000]], y[order[:3000]]), optimizer, 32, F.nll_loss)
    return accuracy(model, (x[order[3000:]], y[order[3000:]]))


def transfer_learning(epochs=3):
    def five(split, first):
        x, y = images("digits", split, 0.13, 0.31)
        chosen = (y >= first) & (y < first + 5)
        return x[chosen], y[chosen] - first

    features = nn.Sequential(
        nn.Conv2d(1, 16, 5, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 64, 5, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())  # fmt: skip
    model = nn.Sequential(features, nn.Linear(64, 5))
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(2):
        train(model, five("train", 0), optimizer)
    before = accuracy(model, five("t10k", 0))
    model = nn.Sequential(features.requires_grad_(False).eval(), nn.Linear(64, 5))
    optimizer = torch.optim.Adam(model[1].parameters(), 1e-2)
    for _ in range(epochs):
        train(model, five("train", 5), optimizer)
    return before, accuracy(model, five("t10k", 5))


def gan_ddp(steps=500):  # two ranks' batches of 128 are one of 256
    def network(i, o):
        return nn.Sequential(
            nn.Linear(i, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, o))  # fmt: skip

    def judge(points, label):
        logits = discriminator(points)
        return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))

    generator, discriminator = network(8, 2), network(2, 1)
    g_optimizer, d_optimizer = (torch.optim.Adam(m.parameters(), 1e-3, (0.5, 0.999)) for m in (generator, discriminator))
    for _ in range(steps):
        d_optimizer.zero_grad()
        fake = generator(torch.randn(256, 8))
        real = torch.randn(256, 2) * torch.tensor([0.5, 1.5]) + torch.tensor([2.0, -1])
        (judge(real, 1.0) + judge(fake.detach(), 0.0)).backward()
        d_optimizer.step()
        g_optimizer.zero_grad()
        judge(fake, 1.0).backward()
        g_optimizer.step()
    points = generator(torch.randn(10000, 8)).detach()
    return points.mean(0).tolist() + points.std(0).tolist()


def reinforce(episodes=100):
    import math

    policy = nn.Sequential(nn.Linear(4, 128), nn.Dropout(0.6), nn.ReLU(), nn.Linear(128, 2), nn.Softmax(1))
    optimizer, running = torch.optim.Adam(policy.parameters(), 1e-2), 10
    for _ in range(episodes):
        x, v, angle, w = (torch.rand(4) * 0.1 - 0.05).tolist()
        logs, up = [], True
        while up and len(logs) < 500:
            choice = torch.distributions.Categorical(policy(torch.tensor([[x, v, angle, w]])))
            action = choice.sample()
            logs.append(choice.log_prob(action))
            push = ((10 if action.item() == 1 else -10) + 0.05 * w * w * math.sin(angle)) / 1.1
            turn = (9.8 * math.sin(angle) - math.cos(angle) * push) / (
                0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1)
            )
            x, v, angle, w = (
                x + 0.02 * v,
                v + 0.02 * (push - 0.05 * turn * math.cos(angle) / 1.1),
                angle + 0.02 * w,
                w + 0.02 * turn,
            )
            up = abs(x) <= 2.4 and abs(angle) <= 12 * math.pi / 180
        running = 0.05 * len(logs) + 0.95 * running
        returns, sum_ = [], 0
        for _ in logs:
            sum_ = 1 + 0.99 * sum_
            returns.insert(0, sum_)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-7)
        optimizer.zero_grad()
        (-torch.cat(logs) * returns).sum().backward()
        optimizer.step()
    return running


if __name__ == "__main__":
    torch.set_num_threads(1)
    chosen = sys.argv[2:3] or "gradient_penalty regression mnist dist_mnist mnist_main dcgan custom_dataset transfer_learning gan_ddp reinforce".split()
    for name in chosen:
        function, *arguments = name.split(":")
        for seed in range(int(sys.argv[3]) if len(sys.argv) > 3 else 5):
            torch.manual_seed(seed)
            result = globals()[function](*(int(a) if a.isdigit() else a for a in arguments))
            numbers = result if isinstance(result, (list, tuple)) else [result]
            print(name, "seed", seed, *(f"{n:.6g}" for n in numbers), flush=True)
            if function == "gradient_penalty":
                break
