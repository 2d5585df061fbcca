#!/usr/bin/env python3
"""Removes each barrier and each wait from the CUDA kernels and from what calls NCCL, one at a time, and requires that a
test notices.

    emulator_mutants.py BUILD_DIRECTORY [FILE ...]

A mutant is one file, compiled without one line and linked into a copy of the tests, whose other objects stay as they
are. Prints a row for each; exit status 1 when one survives. Takes minutes, so ctest runs it when asked for what is long:
./go test --long -R emulator_mutants. Needs a build with RINGGRAD_CUDA=emulated in which the tests below have been built.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
from relink import ROOT, Build

WAIT = r"__syncthreads|__threadfence|__pipeline_wait_prior|(?:cuda::)?wait_for|\S+(?:->|\.)block|synchronize"
HOPPER = (r"mbarrier_\w+|fence_\w+|tma_\w+|bulk_\w+(?:<\d>)?|wgmma_(?:fence|commit|wait)(?:<\d>)?|named_barrier_\w+|"
          r"cluster_\w+|wait_for_previous_launch")
SITE = re.compile(rf"^\s*(?:if \(.*\) )?((?:{WAIT}|{HOPPER})\(.*\));")
# Files, the folder of the build whose objects they belong to, and the tests that are to notice: a program and its cases.
KINDS = [
    ("cuda_kernels/*.cu", "ringgrad_checked_kernels", [("emulator_racecheck", "[cuda]")]),
    ("cuda_kernels/hopper/*.cu*", "ringgrad_checked_kernels", [("emulator_racecheck", "[cuda]")]),
    ("cuda_kernels/ladders/*.cu", "ringgrad_checked_kernels", [("emulator_racecheck", "[cuda]")]),
    ("cuda_kernels/common/*.cuh", "ringgrad_checked_kernels", [("emulator_racecheck", "[cuda]")]),
    ("distributed/**/nccl_*.cpp", "ringgrad_nccl",
     [("all_tests", f"[#{file}][cuda]") for file in ("cuda_nccl_test", "cuda_nccl_ring_test", "cuda_nccl_training_test",
                                                          "cuda_nccl_capture_test")]),
]
# The kernel that needs a header's barrier, if the header's name does not tell it.
COMPILED_IN = {
    "reduce.cuh": "softmax.cu",
    "channels.cuh": "batch_norm.cu",
    "last_block.cuh": "batch_norm.cu",
    "simt_gemm.cuh": "conv2d.cu",
    "tensor_core_gemm.cuh": "matmul_tensor_cores.cu",
}


def sites(names):
    for pattern, objects, tests in KINDS:
        for path in sorted(ROOT.glob(pattern)):
            if names and path.name not in names:
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if match := SITE.match(line):
                    yield path.relative_to(ROOT), number, match.group(1), objects, tests


def run(build, file, number, target, tests):
    """Returns the output of tests that fail without line `number` of `file`; empty if they pass."""
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        lines = (ROOT / file).read_text().splitlines()
        lines[number - 1] = ""
        mutated = scratch / "ringgrad" / file
        mutated.parent.mkdir(parents=True)
        mutated.write_text("\n".join(lines) + "\n")
        compiled = COMPILED_IN.get(file.name, file.name)
        built = next(o for o in build.commands if f"{target}.dir/" in o and o.endswith(f"/{compiled}.o"))
        source = mutated if file.suffix != ".cuh" else None
        done = build.compile(built, scratch / "mutant.o", overlay=scratch, source=source)
        assert done.returncode == 0, done.stdout
        return next((said for program, cases in tests if (said := test(build, scratch, program, cases, built))), "")


def test(build, scratch, program, cases, built):
    build.link(f"tests/{program}", scratch / program, {built: scratch / "mutant.o"})
    try:
        result = subprocess.run([scratch / program, "--filenames-as-tags", cases, "--abort"], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return "hangs"
    return result.stdout if result.returncode else ""


def verdict(output):
    if not output:
        return "SURVIVED"
    if match := re.search(r"race\s+in\s+\w+\s+memory", output):
        return " ".join(match.group(0).split())
    for sign, name in (("divergent __syncthreads", "barrier check"), ("hangs", "hangs"), ("error", "wrong result"),
                       ("FAILED", "wrong result")):
        if sign in output:
            return name
    return "failed"


def main():
    build = Build(sys.argv[1])
    count = survivors = 0
    for file, number, call, objects, tests in sites(sys.argv[2:]):
        said = verdict(run(build, file, number, objects, tests))
        count += 1
        survivors += said == "SURVIVED"
        print(f"{file}:{number:<4} without {call:<40} {said}", flush=True)
    print(f"{count} mutants, {survivors} survived")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
