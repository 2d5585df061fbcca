#!/usr/bin/env python3
"""Trains a network in PyTorch on synthetic data, in every configuration that might win, and prints JSON.

    train_pytorch.py --model resnet18 --batch 64 --dtype fp32 --threads 2

Each configuration runs in a process of its own, so that peak memory and the time to the first step are its own, and the
rounds go over all configurations in turn, so that a slow minute of the machine hits them alike. Per configuration:
the median step of all rounds, its quartiles, images per second at the median. What `ringgrad bench train` compares with.
"""

import argparse
import importlib.metadata
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True

import report

BEGIN = time.monotonic()

# name -> (channels_last, torch.compile mode or None, optimizer implementation, environment)
HUGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}
CONFIGURATIONS = {
    "eager_nchw": (False, None, {}, {}),
    "eager_channels_last": (True, None, {}, {}),
    "eager_nchw_foreach": (False, None, {"foreach": True}, {}),
    "eager_nchw_fused": (False, None, {"fused": True}, {}),
    "eager_channels_last_fused": (True, None, {"fused": True}, {}),
    "eager_channels_last_fused_huge_pages": (True, None, {"fused": True}, HUGE_PAGES),
    "compile_nchw_fused": (False, "default", {"fused": True}, {}),
    "compile_channels_last_fused": (True, "default", {"fused": True}, {}),
    "compile_channels_last_foreach": (True, "default", {"foreach": True}, {}),
    "compile_channels_last_fused_huge_pages": (True, "default", {"fused": True}, HUGE_PAGES),
    "max_autotune_channels_last_fused": (True, "max-autotune", {"fused": True}, {}),
}


def train(arguments, name):
    """One process: warm-up, then timed steps. Prints one JSON line per round, when asked by a line on stdin."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "golden"))
    import networks
    import torch

    channels_last, mode, implementation, _ = CONFIGURATIONS[name]
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    _, shape, classes, _ = networks.NETWORKS[arguments.model]
    model = networks.build(arguments.model).train()
    images = torch.randn(arguments.batch, *shape)
    labels = torch.randint(0, classes, (arguments.batch,))
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, **implementation)
    forward = torch.compile(model, mode=mode) if mode else model
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=arguments.dtype == "bf16")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with autocast:
            loss = torch.nn.functional.cross_entropy(forward(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    step()
    first_step = time.monotonic() - BEGIN
    for _ in range(arguments.warm_up):
        step()
    print(json.dumps({"first_step_s": round(first_step, 3)}), flush=True)
    for _ in sys.stdin:
        times = []
        for _ in range(arguments.steps):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": times, "peak_mib": round(peak)}), flush=True)


class Child:
    """A configuration in its own process: asked for a round, it answers with step times."""

    def __init__(self, name):
        environment = os.environ | CONFIGURATIONS[name][3] | {"OMP_NUM_THREADS": str(ARGUMENTS.threads)}
        command = [sys.executable, __file__, *sys.argv[1:], "--one", name]
        self.name, self.seconds, self.error = name, [], None
        self.log = open(os.devnull, "w") if not ARGUMENTS.verbose else None
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        self.result = self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            self.error = f"ended with status {self.process.wait()}"
            return {}
        return json.loads(line)

    def round(self):
        if self.error:
            return
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = self.read()
        self.seconds += answer.pop("seconds", [])
        self.result |= answer

    def finish(self):
        self.process.stdin.close()
        self.process.wait()
        if self.error:
            return {"name": self.name, "error": self.error}
        low, median, high = statistics.quantiles(self.seconds, n=4)
        return {
            "name": self.name,
            "median_ms": round(median * 1e3, 3),
            "quartiles_ms": [round(low * 1e3, 3), round(high * 1e3, 3)],
            "images_per_second": round(ARGUMENTS.batch / median, 1),
            **self.result,
        }


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["cnn", "resnet20", "resnet18"], default="resnet18")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--steps", type=int, default=10, help="timed steps per round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(CONFIGURATIONS), choices=list(CONFIGURATIONS), metavar="NAME")
    parser.add_argument("--verbose", action="store_true", help="show what the children write to stderr")
    parser.add_argument("--one", choices=list(CONFIGURATIONS), help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    if ARGUMENTS.one:
        return train(ARGUMENTS, ARGUMENTS.one)
    children = []
    for name in ARGUMENTS.only:
        print(f"{name}: starting", file=sys.stderr)
        children.append(Child(name))
    for number in range(ARGUMENTS.rounds):
        for child in children:
            child.round()
        print(f"round {number + 1} of {ARGUMENTS.rounds} done", file=sys.stderr)
    results = [child.finish() for child in children]
    timed = [r for r in results if "median_ms" in r]
    best = min(timed, key=lambda r: r["median_ms"]) if timed else None
    header = {
        "peer": "PyTorch " + importlib.metadata.version("torch"),
        "machine": report.machine(),
        **{key: getattr(ARGUMENTS, key) for key in ("model", "batch", "dtype", "threads", "steps", "rounds")},
        "best": best and best["name"],
        "best_images_per_second": best and best["images_per_second"],
    }
    report.show(header, "configurations", results)
    return 0 if timed else 1


if __name__ == "__main__":
    ARGUMENTS = parse()
    sys.exit(main())
