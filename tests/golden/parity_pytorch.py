#!/usr/bin/env python3
"""ringgrad against PyTorch, live: the same weights, the same batch, every tensor compared.

    parity_pytorch.py PARITY_DUMP [NETWORK …]       PARITY_DUMP: the program built from tests/golden/parity_dump.cpp

Training: logits, losses, every gradient of the first step, and every parameter and buffer after five steps of SGD agree.
The relative bound is 1e-9 in float64, and 1e-4 in float32 (or 5 times PyTorch's own error, if a network amplifies
errors). Batch norm is in training mode (tests/golden/training.py).
Checkpoints: a PyTorch state_dict saved as safetensors gives the same logits here, with and without the prefix
"module.". A file that is saved here loads in PyTorch strictly and unchanged.
Operations: values and gradients of the cases of tests/golden/make_ops.py agree, on different inputs each time.

Exit status 77 (skipped) where this Python has no torch, torchvision or safetensors.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True

try:
    import networks
    import safetensors.torch
    import torch
    import torchvision  # noqa: F401, which networks needs
    import training
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TOLERANCE = {"float32": 1e-4, "float64": 1e-9}
TRAINED = ["cnn", "lenet", "resnet20", "resnet20b", "resnet18", "resnet50"]
# A search along a line multiplies the last bits of float32, and bounds of 1e300 are no numbers of it.
FLOAT64_ONLY = ("lbfgs: ", "clamp from: ")
EXCHANGED = TRAINED + ["resnet18_imagenet", "resnet50_imagenet"]


class Report:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, what, good, detail=""):
        self.passed, self.failed = self.passed + good, self.failed + (not good)
        print(f"{'ok  ' if good else 'FAIL'} {what}{': ' if detail else ''}{detail}", flush=True)


def dump(program, *arguments):
    result = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"parity_dump {' '.join(map(str, arguments))}: {result.stderr.strip()}")
    return result.stdout


def relative(ours, reference):
    return float((ours.double() - reference.double()).norm() / reference.double().norm())


def compare_training(report, program, network, dtype, directory):
    path = directory / "training.safetensors"
    dump(program, "train", network, dtype, path)
    ours = safetensors.torch.load_file(path)
    # float64 for both: of two float32 results, each has rounding errors of its own, which deep networks amplify
    reference = training.run(network, torch.float64, steady=dtype == "float32")
    missing, extra = sorted(reference.keys() - ours.keys()), sorted(ours.keys() - reference.keys())
    report.check(
        f"{network} {dtype}: the same {len(reference)} tensors", not missing and not extra, f"{missing} {extra}"[:200]
    )
    if missing:
        return
    errors, own = training.errors(ours, reference), {}
    if dtype == "float32":  # where PyTorch convolves directly, Winograd's algorithm has four times its error
        own = training.errors(training.run(network, torch.float32, steady=True), reference)
    bounds = {name: max(TOLERANCE[dtype], 5 * own.get(name, 0)) for name in errors}
    for kind in ("logits", "losses", "grad.", "state."):
        name = max((n for n in errors if n.startswith(kind)), key=lambda n: errors[n] / bounds[n])
        good = errors[name] <= bounds[name]  # false for NaN
        theirs = f", PyTorch's {own[name]:.1e}" if own else ""
        report.check(f"{network} {dtype} {kind}", good, f"worst relative error {errors[name]:.1e}{theirs} in {name}")


def evaluate(model, network):
    with torch.no_grad():
        return model.eval()(training.batch(network, torch.float32)[0])


def exchange(report, program, network, directory):
    torch.manual_seed(1)
    model = networks.build(network)
    for name, buffer in model.named_buffers():  # running statistics that matter
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5) if name.endswith("var") else buffer.uniform_(-0.1, 0.1)
    expected = evaluate(model, network)
    weights, logits = directory / "weights.safetensors", directory / "logits.safetensors"
    for prefix in ("", "module."):
        safetensors.torch.save_file({prefix + name: t for name, t in model.state_dict().items()}, weights)
        note = dump(program, "eval", network, "float32", weights, logits)
        error = relative(safetensors.torch.load_file(logits)["logits"], expected)
        what = f"{network}: PyTorch's weights{f' with {prefix!r}' if prefix else ''} give its logits here"
        report.check(what, error <= 1e-4 and ("module." in note) == bool(prefix), f"{error:.1e} {note.strip()}")

    dump(program, "save", network, "float32", weights)
    dump(program, "eval", network, "float32", weights, logits)
    model.load_state_dict(safetensors.torch.load_file(weights), strict=True)
    unchanged = training.load_hashed(networks.build(network), steady=True).state_dict()
    equal = all(torch.equal(t, unchanged[name]) for name, t in model.state_dict().items())
    report.check(f"{network}: weights saved here load in PyTorch bit for bit", equal)
    error = relative(safetensors.torch.load_file(logits)["logits"], evaluate(model, network))
    report.check(f"{network}: and give the same logits there", error <= 1e-4, f"{error:.1e}")


def compare_operations(report, program, directory):
    cases, seed = directory / "ops.json", str(time.time_ns())
    make = Path(__file__).resolve().parent / "make_ops.py"
    subprocess.run([sys.executable, "-BW", "ignore", make, "--seed", seed, cases], check=True, stderr=subprocess.DEVNULL)
    for dtype in TOLERANCE:
        lines = dump(program, "ops", cases, dtype).splitlines()
        differing = [line for line in lines if dtype == "float64" or not line.startswith(FLOAT64_ONLY)]
        report.check(f"{differing[-1]} of operations in {dtype}", len(differing) == 1, f"seed {seed} {differing[:-1]}")


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    program, wanted = sys.argv[1], sys.argv[2:]
    report = Report()
    with tempfile.TemporaryDirectory(prefix="parity") as name:
        directory = Path(name)
        if not wanted or "ops" in wanted:
            compare_operations(report, program, directory)
        for network in [n for n in TRAINED if not wanted or n in wanted]:
            for dtype in TOLERANCE:
                compare_training(report, program, network, dtype, directory)
        for network in [n for n in EXCHANGED if not wanted or n in wanted]:
            exchange(report, program, network, directory)
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed or not report.passed else 0


if __name__ == "__main__":
    sys.exit(main())
