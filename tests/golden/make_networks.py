#!/usr/bin/env python3
"""Writes networks.json: what PyTorch computes for each network with hashed weights (training.py), condensed.

Every number comes from PyTorch in float64. "mixed" cases are for float64 and "steady" ones for float32 (see
Note [Mixed and steady weights] in tests/golden/hashed_weights.h). A tensor is condensed to its L2 norm and its dot product with
hashed.uniform(NAME + "#dot"). Rows of "tensors": [norm and dot of the gradient of the first step, norm and dot of the
value after the last step]; a buffer has the last two only.
"""

import json
import sys
from pathlib import Path

import hashed
import torch
import training

NETWORKS = ["cnn", "lenet", "resnet20", "resnet20b", "resnet18", "resnet50"]


def condense(name, tensor):
    v = torch.from_numpy(hashed.uniform(name + "#dot", tuple(tensor.shape)))
    return [float(tensor.norm()), float((tensor * v).sum())]


def case(network, steady):
    result = training.run(network, torch.float64, steady)
    digits = 9 if steady else 13

    def rounded(values):
        return [float(f"{value:.{digits}g}") for value in values]

    tensors = {}
    for key, tensor in result.items():
        if key.startswith("state."):
            name = key.removeprefix("state.")
            gradient = result.get("grad." + name)
            row = condense(name, gradient) if gradient is not None else []
            tensors[name] = rounded(row + condense(name, tensor))
    out = {
        "network": network,
        "weights": "steady" if steady else "mixed",
        "logits": rounded(result["logits"].flatten().tolist()),
        "losses": rounded(result["losses"].tolist()),
        "gradient_norm": rounded([training.total_gradient_norm(result)])[0],
    }
    if steady:
        # PyTorch's own float32 must be much closer to these numbers than the tolerance of 3e-4, or
        # the tolerance would mean nothing.
        worst = max(training.errors(training.run(network, torch.float32, True), result).values())
        out["pytorch_float32_error"] = float(f"{worst:.2g}")
        assert worst < 3e-5, f"{network}: float32 is {worst} from float64; the weights are not steady"
    out["tensors"] = tensors
    return out


def main():
    cases = [case(network, steady) for network in NETWORKS for steady in (False, True)]
    document = {
        "generator": "tests/golden/make_networks.py",
        "torch": torch.__version__.split("+")[0],
        "batch": training.BATCH,
        "steps": training.STEPS,
        **training.SGD,
        "cases": cases,
    }
    text = json.dumps(document, indent=0, separators=(",", ":"))
    # One line per tensor and per list of numbers: short, and still a readable diff.
    text = text.replace(",\n", ", ").replace("[\n", "[").replace("\n]", "]").replace('], "', '],\n"')
    path = Path(__file__).with_name("networks.json")
    path.write_text(text + "\n")
    print(f"{path}: {len(text)} bytes, {len(cases)} cases", file=sys.stderr)


if __name__ == "__main__":
    main()
