#!/usr/bin/env python3
"""Writes tests/fuzz/corpus/torch with PyTorch: files of torch.save(), and in tests/program/pth.json what is in them.
program_weights_test.py reads both."""

import io, json, pathlib, zipfile

import torch
from torch import nn

TESTS = pathlib.Path(__file__).resolve().parents[1]
NAMES = {torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64", torch.int32: "I32",
         torch.uint8: "U8", torch.bool: "BOOL"}


def files():
    torch.manual_seed(1)
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6) / 8
    yield "dtypes", {str(dtype).removeprefix("torch."): (torch.arange(6) - 2).clamp(0 if dtype in (torch.uint8, torch.bool) else -2).to(dtype)
                     for dtype in NAMES}
    yield "views", {"whole": base, "transposed": base.t(), "columns": base[:, 1:5:2], "tail": base[3], "one": base[2, 3], "wide": base[0, 0].expand(3)}
    yield "none", {"empty": torch.empty(0, 3), "scalar": torch.tensor(2.5), "part": base[1:1]}
    yield "module", nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.PReLU()).state_dict()
    yield "parameters", dict(nn.Linear(2, 2, bias=False).named_parameters())
    yield "checkpoint", {"epoch": 3, "loss": 0.25, "name": "näme", "done": True, "rates": [0.1, None], "model": nn.Linear(2, 1).state_dict()}


def main():
    expected = {}
    for name, saved in files():
        buffer = io.BytesIO()
        torch.save(saved, buffer)
        tensors = saved["model"] if "model" in saved else saved
        (TESTS / "fuzz/corpus/torch" / f"{name}.pth").write_bytes(buffer.getvalue())
        expected[name] = {key: [NAMES[t.dtype], list(t.shape), t.detach().double().flatten().tolist()] for key, t in tensors.items()}
    (TESTS / "program/pth.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
