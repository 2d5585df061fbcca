#!/usr/bin/env python3
"""Trains a network in PyTorch on synthetic data, in every configuration that might win, and prints JSON.

    train_pytorch.py --model resnet18 --batch 64 --dtype fp32 --threads 2
    train_pytorch.py --model resnet18 --batch 512 --dtype bf16 --device cuda

If there are more than three configurations, each first runs alone for a moment. Its fastest step decides whether it is among
the best three. These run in turn, round after round, so that a slow minute of the machine affects all alike; their median
step is reported. Every configuration is listed with its result, or with the reason why it failed. Each runs in a separate
process, so that peak memory and the time to the first step are its own. torch.compile takes minutes the first time, and
seconds with its cache. Debian has the libraries that some preload: libjemalloc2, libtcmalloc-minimal4, libomp5.

train_compare.py does the same in turn with `ringgrad bench train`.
"""

import argparse
import dataclasses
import importlib.metadata
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True

import report

BEGIN = time.monotonic()
FINALISTS = 3  # best configurations of the first stage, which run in the second
COMPILE_LIMIT_S = 400


@dataclasses.dataclass(frozen=True)
class Configuration:
    channels_last: bool = True
    compile: str = ""  # the mode of torch.compile for network and loss; "": eager
    optimizer: str = "fused"  # SGD's implementation: fused, foreach, or compiled
    environment: dict = dataclasses.field(default_factory=dict)
    dtype: str = ""  # "": the work's
    preload: str = ""  # a library that replaces malloc or OpenMP


HUGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}
# glibc keeps freed memory instead of giving it back to the system after every step.
HEAP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 36), "MALLOC_TOP_PAD_": str(64 << 20)}
# PyTorch's performance tuning guide
JEMALLOC = {"MALLOC_CONF": "oversize_threshold:1,background_thread:true,metadata_thp:auto,dirty_decay_ms:9000000000,"
                           "muzzy_decay_ms:9000000000"}
TCMALLOC = {"TCMALLOC_RELEASE_RATE": "0", "TCMALLOC_LARGE_ALLOC_REPORT_THRESHOLD": str(1 << 40)}
PINNED = {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores"}
NO_TILES = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
LLVM_OPENMP = {"KMP_AFFINITY": "granularity=fine,compact,1,0", "KMP_BLOCKTIME": "1"}

CONFIGURATIONS = {
    "nchw_fused": Configuration(channels_last=False),
    "nchw_fused_heap": Configuration(channels_last=False, environment=HEAP),
    "channels_last_foreach": Configuration(optimizer="foreach"),
    "channels_last_fused": Configuration(),
    "channels_last_fused_huge_pages": Configuration(environment=HUGE_PAGES),
    "channels_last_fused_heap": Configuration(environment=HEAP),
    "channels_last_fused_heap_pinned": Configuration(environment=HEAP | PINNED),
    "channels_last_fused_heap_llvm_openmp": Configuration(environment=HEAP | LLVM_OPENMP, preload="libomp.so.5"),
    "channels_last_fused_jemalloc": Configuration(environment=JEMALLOC, preload="libjemalloc.so.2"),
    "channels_last_fused_tcmalloc": Configuration(environment=TCMALLOC, preload="libtcmalloc_minimal.so.4"),
    "compile_nchw_fused_heap": Configuration(channels_last=False, compile="default", environment=HEAP),
    "compile_channels_last_fused_heap": Configuration(compile="default", environment=HEAP),
    "compile_channels_last_compiled_sgd_heap": Configuration(compile="default", optimizer="compiled", environment=HEAP),
    "compile_cpp_wrapper_channels_last_fused_heap": Configuration(
        compile="default", environment=HEAP | {"TORCHINDUCTOR_CPP_WRAPPER": "1"}),
    "compile_cuda_graphs_channels_last_fused_heap": Configuration(compile="reduce-overhead", environment=HEAP),
    # For bf16 on processors with tiles, where PyTorch 2.15 ends with an illegal instruction:
    # without tiles, or in float32.
    "channels_last_fused_heap_no_tiles": Configuration(environment=HEAP | NO_TILES),
    "compile_channels_last_fused_heap_no_tiles": Configuration(compile="default", environment=HEAP | NO_TILES),
    "compile_channels_last_fused_heap_fp32": Configuration(compile="default", environment=HEAP, dtype="fp32"),
    "compile_nchw_fused_heap_fp32": Configuration(channels_last=False, compile="default", environment=HEAP, dtype="fp32"),
    "max_autotune_channels_last_fused_heap": Configuration(compile="max-autotune-no-cudagraphs", environment=HEAP),
}


@dataclasses.dataclass(frozen=True)
class Work:
    model: str
    batch: int
    dtype: str
    threads: int
    device: str = "cpu"


def train(work, name):
    """Runs in one process: first some steps, then for every number of seconds on stdin as many steps as fit, at least three.
    Answers with JSON lines."""
    configuration = CONFIGURATIONS[name]
    if configuration.preload and configuration.preload not in open("/proc/self/maps").read():
        sys.exit(f"{configuration.preload} is not installed")
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "golden"))
    import networks
    import torch

    libraries = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")  # resident size of PyTorch itself
    torch.set_num_threads(work.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    _, shape, classes, _ = networks.NETWORKS[work.model]
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False  # float32 means float32, as in ringgrad
    model = networks.build(work.model).train().to(work.device)
    images = torch.randn(work.batch, *shape, device=work.device)
    labels = torch.randint(0, classes, (work.batch,), device=work.device)
    if configuration.channels_last:
        model = model.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
    kind = "fused" if configuration.optimizer == "fused" else "foreach"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, **{kind: True})
    update = torch.compile(optimizer.step) if configuration.optimizer == "compiled" else optimizer.step

    def loss_of(images, labels):
        return torch.nn.functional.cross_entropy(model(images), labels)

    forward = torch.compile(loss_of, mode=configuration.compile) if configuration.compile else loss_of
    autocast = torch.autocast(work.device, torch.bfloat16, enabled=(configuration.dtype or work.dtype) == "bf16")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with autocast:
            loss = forward(images, labels)
        loss.backward()
        update()
        if work.device == "cuda":
            torch.cuda.synchronize()
        return loss

    step()
    first_step = time.monotonic() - BEGIN
    for _ in range(3):
        step()
    print(json.dumps({"first_step_s": round(first_step, 3)}), flush=True)
    for line in sys.stdin:
        times, end = [], time.perf_counter() + float(line)
        while len(times) < 3 or time.perf_counter() < end:
            start = time.perf_counter()
            step()
            times.append((time.perf_counter() - start) * 1e3)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"ms": times, "peak_bytes": peak, "increment_bytes": peak - libraries}), flush=True)


class Process:
    """A configuration in its own process. It answers a request for a round with the times of its steps."""

    def __init__(self, work, name):
        configuration = CONFIGURATIONS[name]
        environment = os.environ | configuration.environment | {"OMP_NUM_THREADS": str(work.threads)}
        if configuration.preload:
            environment["LD_PRELOAD"] = configuration.preload
        command = [sys.executable, __file__, *work_options(work), "--one", name]
        self.name, self.error, self.rounds = name, "", []  # rounds: the median of each, in ms
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True)
        limit = threading.Timer(COMPILE_LIMIT_S, self.process.kill)
        limit.start()
        self.result = self.read()
        limit.cancel()

    def read(self):
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        status = self.process.wait()
        self.errors.seek(0)
        said = self.errors.read().strip().splitlines()
        self.error = f"killed after {COMPILE_LIMIT_S} s" if status == -9 else said[-1] if said else f"status {status}"
        return {}

    def round(self, seconds):
        """Step times in ms; none if it has failed."""
        if self.error:
            return []
        try:
            self.process.stdin.write(f"{seconds}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # read() reports the reason
        answer = self.read()
        self.result |= {key: value for key, value in answer.items() if key != "ms"}
        if "ms" in answer:
            self.rounds.append(statistics.median(answer["ms"]))
        return answer.get("ms", [])

    def finish(self):
        self.process.stdin.close()
        self.process.wait()


def work_options(work):
    return ["--model", work.model, "--batch", str(work.batch), "--dtype", work.dtype, "--device", work.device,
            "--threads", str(work.threads)]


def try_all(work, names, seconds):
    """Name -> {"fastest_ms"} or {"failed"}: each configuration alone, one after the other."""
    tried = {}
    for name in names:
        start = time.monotonic()
        process = Process(work, name)
        times = process.round(seconds)
        process.finish()
        tried[name] = {"failed": process.error} if process.error else {"fastest_ms": round(min(times), 3)}
        print(f"{work.model} {work.dtype} {name}: {process.error or f'{min(times):.1f} ms'}, "
              f"{time.monotonic() - start:.0f} s", file=sys.stderr)
    return tried


def chosen(work, names, seconds):
    """The results of try_all, and the names of the configurations that run in turn: the fastest, or all if there are few."""
    if len(names) <= FINALISTS:
        return {name: {} for name in names}, names
    tried = try_all(work, names, seconds)
    times = {name: result["fastest_ms"] for name, result in tried.items() if "fastest_ms" in result}
    return tried, sorted(times, key=times.get)[:FINALISTS]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["cnn", "resnet20", "resnet18"], default="resnet18")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=1, help="of a configuration in each stage's round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=list(CONFIGURATIONS), choices=list(CONFIGURATIONS), metavar="NAME")
    parser.add_argument("--one", choices=list(CONFIGURATIONS), help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    arguments = parse()
    work = Work(arguments.model, arguments.batch, arguments.dtype, arguments.threads, arguments.device)
    if arguments.one:
        return train(work, arguments.one)
    tried, names = chosen(work, arguments.only, arguments.seconds)
    processes = [Process(work, name) for name in names]
    for number in range(arguments.rounds):
        for process in processes:
            process.round(arguments.seconds)
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
    for process in processes:
        process.finish()
        tried[process.name] |= {"failed": process.error} if process.error else {
            **process.result, "median_ms": round(statistics.median(process.rounds), 3)}
    processes = [process for process in processes if not process.error]
    best = min(processes, key=lambda process: statistics.median(process.rounds), default=None)
    header = {
        "peer": "PyTorch " + importlib.metadata.version("torch"),
        "machine": report.machine(),
        **dataclasses.asdict(work),
        "best": best and best.name,
        "best_images_per_second": best and round(work.batch / statistics.median(best.rounds) * 1e3, 1),
    }
    report.show(header, "configurations", [{"name": name, **result} for name, result in tried.items()])
    return 0 if best else 1


if __name__ == "__main__":
    sys.exit(main())
