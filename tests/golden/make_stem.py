#!/usr/bin/env python3
"""Writes stem.json: the output of torchvision's ResNet-18, with its stem of 7×7 and a max pool, for images of 64 pixels.

The network is written out here, with torchvision's names of parameters, so that only PyTorch is needed. Its weights and
images are hashed (hashed.py, mixed weights). It is in evaluation mode, and everything is in float64.
"""

import json
from pathlib import Path

import hashed
import torch
from torch import nn
from torch.nn import functional as F

CLASSES, BATCH, SIDE = 10, 4, 64


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        for i, (inputs, outputs) in enumerate([(64, 64), (64, 128), (128, 256), (256, 512)], 1):
            first = BasicBlock(inputs, outputs, 1 if i == 1 else 2)
            setattr(self, f"layer{i}", nn.Sequential(first, BasicBlock(outputs, outputs, 1)))
        self.fc = nn.Linear(512, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return self.fc(self.layer4(self.layer3(self.layer2(self.layer1(x)))).mean((2, 3)))


def main():
    model = ResNet18().double().eval()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            tensor.copy_(torch.from_numpy(hashed.state(name, tuple(tensor.shape), False)))
        logits = model(torch.from_numpy(hashed.uniform("input", (BATCH, 3, SIDE, SIDE))))
    document = {"generator": "tests/golden/make_stem.py", "torch": torch.__version__.split("+")[0]}
    document["state"] = list(model.state_dict())
    document["logits"] = [float(f"{value:.13g}") for value in logits.flatten().tolist()]
    Path(__file__).with_name("stem.json").write_text(json.dumps(document, indent=1) + "\n")


main()
