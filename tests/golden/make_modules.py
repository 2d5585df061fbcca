#!/usr/bin/env python3
"""Writes modules.txt: what PyTorch prints for these modules, and below each the names and shapes of its state. The twins
of tests/module_print_test.cpp, in the same order."""

from pathlib import Path

from torch import nn

MODULES = [
    nn.Linear(784, 128),
    nn.Linear(3, 4, bias=False),
    nn.Conv2d(1, 10, 5),
    nn.Conv2d(2, 4, (3, 2), stride=2, padding=1, dilation=2, groups=2, bias=False),
    nn.Conv1d(2, 4, 3),
    nn.Conv1d(2, 4, 3, stride=2, padding=1, dilation=2, groups=2, bias=False),
    nn.ConvTranspose2d(2, 4, 3, stride=2, output_padding=1),
    nn.BatchNorm2d(4),
    nn.BatchNorm1d(4, eps=1e-3, affine=False),
    nn.BatchNorm2d(4, bias=False, track_running_stats=False),
    nn.LayerNorm(4),
    nn.LayerNorm((3, 4), eps=1e-6, bias=False),
    nn.GroupNorm(2, 4),
    nn.GroupNorm(1, 4, eps=1e-3, affine=False),
    nn.MaxPool2d(3, stride=2, padding=1),
    nn.MaxPool2d((3, 2)),
    nn.AvgPool2d(2),
    nn.AdaptiveAvgPool2d((2, 4)),
    nn.AdaptiveAvgPool2d(1),
    nn.Upsample(scale_factor=2),
    nn.Upsample(scale_factor=1.5, mode="bilinear"),
    nn.Upsample(size=(4, 6), mode="bilinear", align_corners=True),
    nn.ReLU(),
    nn.LeakyReLU(1.0),
    nn.ELU(),
    nn.ELU(0.5),
    nn.PReLU(),
    nn.PReLU(3),
    nn.GELU(),
    nn.SiLU(),
    nn.Sigmoid(),
    nn.Tanh(),
    nn.Softmax(1),
    nn.LogSoftmax(-1),
    nn.Dropout(),
    nn.Dropout2d(0.25),
    nn.Flatten(),
    nn.Identity(),
    nn.Embedding(10, 3),
    nn.Embedding(10, 3, padding_idx=-1),
    nn.Sequential(),
    nn.Sequential(nn.Linear(1, 2), nn.Sequential(nn.ReLU())),
    nn.Sequential(nn.ReLU(), nn.ReLU()),
    nn.ModuleList([nn.ReLU(), nn.Linear(1, 2), nn.Linear(1, 2), nn.Linear(2, 2)]),
    nn.ModuleDict({"a": nn.Conv2d(1, 2, 3), "b": nn.Sequential(nn.BatchNorm2d(2))}),
]


def state_of(module):
    return "".join(f" {name} {list(value.shape)}" for name, value in module.state_dict().items())


text = "".join(f"{module}\n={state_of(module)}\n\n" for module in MODULES)
Path(__file__).with_name("modules.txt").write_text(text)
