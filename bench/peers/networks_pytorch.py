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


def lenet5():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5),
                         nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(inplace=True),
                         nn.Linear(120, 84), nn.ReLU(inplace=True), nn.Linear(84, 10))


def plain_conv(i, o, kernel, stride=1, padding=None):
    return [nn.Conv2d(i, o, kernel, stride, kernel // 2 if padding is None else padding), nn.ReLU(inplace=True)]


def alexnet():
    net = [*plain_conv(3, 64, 11, 4, 2), nn.MaxPool2d(3, 2), *plain_conv(64, 192, 5), nn.MaxPool2d(3, 2),
           *plain_conv(192, 384, 3), *plain_conv(384, 256, 3), *plain_conv(256, 256, 3), nn.MaxPool2d(3, 2), nn.Flatten()]
    for i in (256 * 6 * 6, 4096):
        net += [nn.Dropout(0.5), nn.Linear(i, 4096), nn.ReLU(inplace=True)]
    return nn.Sequential(*net, nn.Linear(4096, 10))


def vgg11():
    net, i = [], 3
    for channels in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        net.append(conv(i, channels, 3) if channels else nn.MaxPool2d(2))
        i = channels or i
    return nn.Sequential(*net, *classifier(i))


def wrn16_4():
    def normed(channels):
        return nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(inplace=True))

    def projected(x, norm, block, shortcut):
        y = norm(x)
        return block(y) + shortcut(y)

    net, i = [nn.Conv2d(3, 16, 3, padding=1, bias=False)], 16
    for channels in (64, 128, 256):
        for block in range(2):
            stride = 2 if block == 0 and channels > 64 else 1
            branch = nn.Sequential(nn.Conv2d(i, channels, 3, stride, 1, bias=False), normed(channels),
                                   nn.Conv2d(channels, channels, 3, padding=1, bias=False))
            if i == channels:
                net.append(Joined([normed(i), branch], lambda x, norm, block: block(norm(x)) + x))
            else:
                net.append(Joined([normed(i), branch, nn.Conv2d(i, channels, 1, stride, bias=False)], projected))
            i = channels
    return nn.Sequential(*net, normed(i), *classifier(i))


def squeezenet():
    net, i = plain_conv(3, 64, 3, 2), 64
    for squeezed in (0, 16, 16, 0, 32, 32, 0, 48, 48, 64, 64):
        if squeezed == 0:
            net.append(nn.MaxPool2d(3, 2, ceil_mode=True))
            continue
        branches = [nn.Sequential(*plain_conv(squeezed, 4 * squeezed, kernel)) for kernel in (1, 3)]
        net += [*plain_conv(i, squeezed, 1), Joined(branches, lambda x, a, b: torch.cat((a(x), b(x)), 1))]
        i = 8 * squeezed
    return nn.Sequential(*net, nn.Dropout(0.5), *plain_conv(i, 10, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def convmixer():
    def mixed(i, kernel, stride, padding, groups):
        return nn.Sequential(nn.Conv2d(i, 256, kernel, stride, padding, groups=groups), nn.GELU(), nn.BatchNorm2d(256))

    net = [mixed(3, 2, 2, 0, 1)]
    for _ in range(8):
        net += [Joined([mixed(256, 5, 1, 2, 256)], lambda x, b: b(x) + x), mixed(256, 1, 1, 0, 1)]
    return nn.Sequential(*net, *classifier(256))


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(inplace=True), nn.Linear(512, 512), nn.ReLU(inplace=True),
                         nn.Linear(512, 10))


class MlpMixer(nn.Module):
    def __init__(self):
        super().__init__()

        def layers(size, hidden):
            return nn.Sequential(nn.Linear(size, hidden), nn.GELU(), nn.Linear(hidden, size))

        self.patches = nn.Conv2d(3, 192, 4, 4)
        self.tokens = nn.ModuleList(nn.Sequential(nn.LayerNorm(192), layers(64, 96)) for _ in range(8))
        self.channels = nn.ModuleList(nn.Sequential(nn.LayerNorm(192), layers(192, 768)) for _ in range(8))
        self.norm, self.head = nn.LayerNorm(192), nn.Linear(192, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        for tokens, channels in zip(self.tokens, self.channels):
            x = x + tokens[1](tokens[0](x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(x)
        return self.head(self.norm(x).mean(1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()

        def twice(i, o):
            return nn.Sequential(conv(i, o, 3), conv(o, o, 3))

        self.down = nn.ModuleList([twice(3, 32), twice(32, 64), twice(64, 128), twice(128, 256)])
        self.widen = nn.ModuleList([nn.ConvTranspose2d(2 * channels, channels, 2, 2) for channels in (128, 64, 32)])
        self.up = nn.ModuleList([twice(2 * channels, channels) for channels in (128, 64, 32)])
        self.head = nn.Conv2d(32, 10, 1)

    def forward(self, x):
        seen = [self.down[0](x)]
        for block in self.down[1:]:
            seen.append(block(F.max_pool2d(seen[-1], 2)))
        y = seen.pop()
        for widen, block in zip(self.widen, self.up):
            y = block(torch.cat((seen.pop(), widen(y)), 1))
        return self.head(y)


def resnet(blocks, bottleneck):
    """He et al. 2015, for images of at least 64 pixels."""
    net, i = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
    for channels, count in zip((64, 128, 256, 512), blocks):
        for block in range(count):
            stride = 2 if block == 0 and channels > 64 else 1
            if bottleneck:
                o = 4 * channels
                branch = nn.Sequential(conv(i, channels, 1), conv(channels, channels, 3, stride), conv(channels, o, 1, after=None))
            else:
                o = channels
                branch = nn.Sequential(conv(i, channels, 3, stride), conv(channels, o, 3, after=None))
            shortcut = conv(i, o, 1, stride, after=None) if stride > 1 or i != o else nn.Identity()
            net.append(Joined([branch, shortcut], lambda x, a, b: F.relu(a(x) + b(x), inplace=True)))
            i = o
    return nn.Sequential(*net, *classifier(i))


SMALL = (64, 3, 32, 32)
NETWORKS = {
    "MobileNetV2": (mobilenet_v2, SMALL), "ShuffleNetV2": (shufflenet_v2, SMALL), "ResNeXt-20": (resnext20, SMALL),
    "DenseNet-40": (densenet40, SMALL), "SE-ResNet-20": (se_resnet20, SMALL), "ViT-tiny": (VisionTransformer, SMALL),
    "LSTM": (RowsLSTM, (64, 28, 28)), "LeNet-5": (lenet5, (64, 1, 28, 28)), "AlexNet": (alexnet, (16, 3, 224, 224)),
    "VGG-11": (vgg11, SMALL), "WRN-16-4": (wrn16_4, SMALL), "SqueezeNet": (squeezenet, (64, 3, 64, 64)),
    "ConvMixer-256/8": (convmixer, SMALL), "MLP": (mlp, (64, 1, 28, 28)), "MLP-Mixer": (MlpMixer, SMALL),
    "U-Net": (UNet, (16, 3, 64, 64)), "ResNet-18": (lambda: resnet((2, 2, 2, 2), False), (16, 3, 224, 224)),
    "ResNet-50": (lambda: resnet((3, 4, 6, 3), True), (16, 3, 64, 64)),
}


def main():
    name, dtype, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    torch.set_num_threads(int(os.environ.get("RINGGRAD_THREADS", os.cpu_count())))
    make, shape = NETWORKS[name]
    net, x = make(), torch.randn(shape)
    if sys.argv[4:] == ["channels_last"]:
        net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    labels = (torch.rand((shape[0], *shape[2:]) if name == "U-Net" else shape[:1]) * 9.99).long()
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
