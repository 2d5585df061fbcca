#!/usr/bin/env python3
"""The networks of bench/networks.cpp in PyTorch, eager: prints the same numbers.

    networks_pytorch.py NAME float32|bfloat16 SECONDS [channels_last]
"""

import contextlib
import json
import os
import resource
import statistics
import sys
import time

# For one thread it is processor time, which other programs do not lengthen.
now = time.process_time if os.environ.get("RINGGRAD_THREADS") == "1" else time.perf_counter
BEGIN = now()

import torch
from torch import nn
from torch.nn import functional as F


def conv(i, o, kernel, stride=1, groups=1, after=nn.ReLU):
    layers = [nn.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(o)]
    return nn.Sequential(*layers, *([after(inplace=True)] if after else []))


class Joined(nn.Module):
    def __init__(self, branches, join):
        super().__init__()
        self.branches, self.join = nn.ModuleList(branches), join

    def forward(self, x):
        return self.join(x, *self.branches)


def classifier(channels):
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]


def mobilenet_v2():
    net, i = [conv(3, 32, 3, after=nn.ReLU6)], 32
    for expansion, channels, blocks, first in ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                               (6, 160, 3, 2), (6, 320, 1, 1)):
        for block in range(blocks):
            stride, wide = first if block == 0 else 1, i * expansion
            layers = [conv(i, wide, 1, after=nn.ReLU6)] if wide != i else []
            layers += [conv(wide, wide, 3, stride, wide, nn.ReLU6), conv(wide, channels, 1, after=None)]
            branch = nn.Sequential(*layers)
            net.append(Joined([branch], lambda x, b: b(x) + x) if stride == 1 and i == channels else branch)
            i = channels
    return nn.Sequential(*net, conv(i, 1280, 1, after=nn.ReLU6), *classifier(1280))


def shuffled(a, b):
    y = torch.cat((a, b), 1)
    n, c, h, w = y.shape
    return y.reshape(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def shufflenet_v2():
    net, i = [conv(3, 24, 3)], 24
    for channels, blocks in ((116, 4), (232, 8), (464, 4)):
        half = channels // 2
        for block in range(blocks):
            stride, seen = (2, i) if block == 0 else (1, half)
            branch = nn.Sequential(conv(seen, half, 1), conv(half, half, 3, stride, half, None), conv(half, half, 1))
            if block > 0:
                net.append(Joined([branch], lambda x, b: shuffled(x.chunk(2, 1)[0], b(x.chunk(2, 1)[1]))))
                continue
            other = nn.Sequential(conv(i, i, 3, 2, i, None), conv(i, half, 1))
            net.append(Joined([other, branch], lambda x, a, b: shuffled(a(x), b(x))))
            i = channels
    return nn.Sequential(*net, conv(i, 1024, 1), *classifier(1024))


def resnext20():
    net, i = [conv(3, 64, 3)], 64
    for width in (128, 256, 512):
        for block in range(2):
            stride = 2 if block == 0 and width > 128 else 1
            branch = nn.Sequential(conv(i, width, 1), conv(width, width, 3, stride, 8), conv(width, 2 * width, 1, after=None))
            shortcut = conv(i, 2 * width, 1, stride, after=None) if i != 2 * width else nn.Identity()
            net.append(Joined([branch, shortcut], lambda x, a, b: F.relu(a(x) + b(x))))
            i = 2 * width
    return nn.Sequential(*net, *classifier(i))


def densenet40():
    def norm_conv(i, o, kernel):
        return nn.Sequential(nn.BatchNorm2d(i), nn.ReLU(inplace=True), nn.Conv2d(i, o, kernel, padding=kernel // 2, bias=False))

    net, i = [nn.Conv2d(3, 16, 3, padding=1, bias=False)], 16
    for block in range(3):
        if block > 0:
            net += [norm_conv(i, i, 1), nn.AvgPool2d(2)]
        for _ in range(12):
            net.append(Joined([norm_conv(i, 12, 3)], lambda x, b: torch.cat((x, b(x)), 1)))
            i += 12
    return nn.Sequential(*net, nn.BatchNorm2d(i), nn.ReLU(inplace=True), *classifier(i))


def se_resnet20():
    def gated(x, block, gate, shortcut):
        y = block(x)
        return F.relu(y * gate(y) + shortcut(x))

    net, i = [conv(3, 16, 3)], 16
    for channels in (16, 32, 64):
        for block in range(3):
            stride = 2 if block == 0 and channels > 16 else 1
            branch = nn.Sequential(conv(i, channels, 3, stride), conv(channels, channels, 3, after=None))
            gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, channels // 4, 1), nn.ReLU(inplace=True),
                                 nn.Conv2d(channels // 4, channels, 1), nn.Sigmoid())
            shortcut = conv(i, channels, 1, stride, after=None) if i != channels else nn.Identity()
            net.append(Joined([branch, gate, shortcut], gated))
            i = channels
    return nn.Sequential(*net, *classifier(i))


class VisionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 192, 4, 4)
        self.class_token = nn.Parameter(torch.zeros(1, 1, 192))
        self.positions = nn.Parameter(torch.randn(1, 65, 192) * 0.02)
        self.layers = nn.Sequential(*(nn.TransformerEncoderLayer(192, 3, 768, 0.0, "gelu", batch_first=True, norm_first=True)
                                      for _ in range(12)))
        self.norm, self.head = nn.LayerNorm(192), nn.Linear(192, 10)

    def forward(self, x):
        patches = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat((self.class_token.expand(x.size(0), 1, 192).to(patches.dtype), patches), 1)
        return self.head(self.norm(self.layers(tokens + self.positions))[:, 0])


class RowsLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(28, 128, 2, batch_first=True), nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


NETWORKS = {"MobileNetV2": mobilenet_v2, "ShuffleNetV2": shufflenet_v2, "ResNeXt-20": resnext20, "DenseNet-40": densenet40,
            "SE-ResNet-20": se_resnet20, "ViT-tiny": VisionTransformer, "LSTM": RowsLSTM}


def main():
    name, dtype, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    torch.set_num_threads(int(os.environ.get("RINGGRAD_THREADS", os.cpu_count())))
    net = NETWORKS[name]()
    x = torch.randn(64, 28, 28) if name == "LSTM" else torch.randn(64, 3, 32, 32)
    if sys.argv[4:] == ["channels_last"]:
        net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    labels = (torch.rand(64) * 9.99).long()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16) if dtype == "bfloat16" else contextlib.nullcontext():
            loss = F.cross_entropy(net(x), labels)
        loss.backward()
        optimizer.step()

    step()
    first = now() - BEGIN
    step()
    times, begin = [], now()
    while len(times) < 3 or now() - begin < seconds:
        one = now()
        step()
        times.append(1e3 * (now() - one))
    print(json.dumps({"step_ms": statistics.median(times), "first_s": first,
                      "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3}))


if __name__ == "__main__":
    main()
