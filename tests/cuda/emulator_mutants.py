#!/usr/bin/env python3
"""Removes each barrier and each wait from the CUDA kernels and from what calls NCCL, one at a time, makes the mistakes of
EDITS, and requires that a test notices.

    emulator_mutants.py BUILD_DIRECTORY [FILE ...]

A mutant is one file, compiled without one line (or with another one) and linked into a copy of the tests, whose other
objects stay as they are. Prints a row for each; exit status 1 when one survives. Takes minutes, so ctest runs it when asked for what is long:
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
SUMS, HOPPER = (f"[#cuda_conv2d_{name}_test][cuda]" for name in ("sums", "hopper"))
# Files, the folder of the build whose objects they belong to, and the tests that are to notice: a program and its cases.
# The first line that names a file counts.
KINDS = [
    ("cuda_kernels/conv2d_shared_image*.cu", "ringgrad_checked_kernels", [("emulator_racecheck", "*in shared memory*")]),
    ("cuda_kernels/hopper/conv2d_columns.cuh", "ringgrad_checked_kernels", [("emulator_racecheck", SUMS)]),
    ("cuda_kernels/hopper/conv2d_*.cuh", "ringgrad_checked_kernels", [("emulator_racecheck", f"{SUMS},{HOPPER}")]),
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
    "gemm.cuh": "hopper/matmul.cu",
    "launch_gemm.cuh": "hopper/matmul.cu",
    **{f"conv2d_{part}.cuh": "hopper/conv2d.cu"
       for part in ("border", "border_64", "border_128", "columns", "im2col", "weight", "weight_border")},
}
# Other mistakes: a file, a part of one of its lines, and what stands there instead.
EDITS = {
    "cuda_kernels/conv2d_shared_image_weight.cu": [
        ("warp % units * kSums", "warp % kTaps * kSums"),  # two units' sums in one place
        ("of_a < pixels", "of_a <= pixels"),  # a pixel after the last
    ],
    "cuda_kernels/hopper/conv2d_columns.cuh": [
        ("int64_t{part} * sums.channels", "int64_t{part / 2} * sums.channels"),  # two warps write one part
        ("static_cast<int>(threadIdx.x) % 32 * 2)", "static_cast<int>(threadIdx.x) % 16 * 2)"),  # other channels
        ("count / (count_ + count)", "count_ / (count_ + count)"),  # the two sides of a merge
        ("distance * distance * count_ * share", "0"),  # the distance of the means
        ("*word_of(row(i).row) = values[i];", ";"),  # the rectified gradient stays in registers
    ],
    "cuda_kernels/hopper/conv2d_im2col.cuh": [
        ("if (from >= part.pixels) return {row, -1};", ";"),  # sums of what is beyond the last pixel
        ("part = warp / Tile::kWide;", "part = 0;"),  # a group's warps write one part
    ],
    "cuda_kernels/hopper/conv2d_border.cuh": [
        ("row + h < tiles.height && w < tiles.width;", "true;"),  # sums of the border's positions
        ("* (Tile::kRows / 4);", "* (Tile::kRows / 8);"),  # rows of the warp before
    ],
    "cuda_kernels/hopper/conv2d_border_64.cuh": [
        ("(first * 2 + consumer) * 4 + thread / 32", "first * 4 + thread / 32"),  # both groups write one part
    ],
}


def sites(names):
    seen = set()
    for pattern, objects, tests in KINDS:
        for path in sorted(ROOT.glob(pattern)):
            if path in seen or (names and path.name not in names):
                continue
            seen.add(path)
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if match := SITE.match(line):
                    yield path.relative_to(ROOT), number, f"without {match.group(1)}", ";", objects, tests
            for old, new in EDITS.get(str(path.relative_to(ROOT)), []):
                number, line = next((n, line) for n, line in enumerate(path.read_text().splitlines(), 1) if old in line)
                yield path.relative_to(ROOT), number, f"{old} → {new}", line.replace(old, new), objects, tests


def run(build, file, number, line, target, tests):
    """Returns the output of tests that fail with `line` as line `number` of `file`; empty if they pass."""
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        lines = (ROOT / file).read_text().splitlines()
        lines[number - 1] = line
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
    for sign, name in (("is missing", "what is missing is named"), ("has changed", "memory in use has changed"),
                       ("divergent __syncthreads", "barrier check"), ("hangs", "hangs"), ("error", "wrong result"),
                       ("FAILED", "wrong result")):
        if sign in output:
            return name
    return "failed"


def main():
    build = Build(sys.argv[1])
    count = survivors = 0
    for file, number, mistake, line, objects, tests in sites(sys.argv[2:]):
        said = verdict(run(build, file, number, line, objects, tests))
        count += 1
        survivors += said == "SURVIVED"
        print(f"{file}:{number:<4} {mistake:<48} {said}", flush=True)
    print(f"{count} mutants, {survivors} survived")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
