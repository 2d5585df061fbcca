#!/usr/bin/env python3
"""Removes each barrier and each wait from the CUDA kernels and from what calls NCCL, one at a time, and requires that a
test notices.

    emulator_mutants.py BUILD_DIRECTORY [FILE ...]

A mutant is one file, compiled without one line and linked into a copy of the tests, whose other objects stay as they
are. Prints a row for each; exit status 1 when one survives. Takes minutes, so ctest runs it when asked for what is long:
./go test --long -R emulator_mutants. Needs a build with RINGGRAD_CUDA=emulated in which the tests below have been built.
"""

import json
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WAIT = r"__syncthreads|__threadfence|__pipeline_wait_prior|(?:cuda::)?wait_for|\S+(?:->|\.)block|synchronize"
SITE = re.compile(rf"^\s*(?:if \(.*\) )?((?:{WAIT})\(.*\));")
# Files, the folder of the build whose objects they belong to, and the tests that are to notice: a program and its cases.
KINDS = [
    ("cuda_kernels/*.cu", "ringgrad_checked_kernels", [("emulator_racecheck", "[cuda]")]),
    ("cuda_kernels/ladders/*.cu", "ringgrad_checked_kernels", [("emulator_racecheck", "[cuda]")]),
    ("cuda_kernels/common/*.cuh", "ringgrad_checked_kernels", [("emulator_racecheck", "[cuda]")]),
    ("distributed/**/nccl_*.cpp", "ringgrad_nccl",
     [("all_tests", f"[#{file}][cuda]") for file in ("cuda_nccl_test", "cuda_nccl_ring_test", "cuda_nccl_training_test",
                                                          "cuda_nccl_capture_test")]),
]
# The kernel that needs a header's barrier, if its name does not say so.
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


class Mutants:
    def __init__(self, build):
        self.build = build
        self.commands = json.loads((build / "compile_commands.json").read_text())

    def compile_command(self, objects, source):
        return next(entry["command"] for entry in self.commands
                    if f"{objects}.dir/" in entry["command"] and Path(entry["file"]).name == source)

    def link_command(self, test):
        lines = subprocess.check_output(["ninja", "-t", "commands", f"tests/{test}"], cwd=self.build, text=True)
        return lines.splitlines()[-1]

    def run(self, file, number, objects, tests):
        """Returns the output of tests that fail without line `number` of `file`; empty if they pass."""
        with tempfile.TemporaryDirectory() as directory:
            scratch = Path(directory)
            lines = (ROOT / file).read_text().splitlines()
            lines[number - 1] = ""
            mutated = scratch / "ringgrad" / file
            mutated.parent.mkdir(parents=True)
            mutated.write_text("\n".join(lines) + "\n")
            source = COMPILED_IN.get(file.name, file.name)
            original = str(ROOT / file)
            words = shlex.split(self.compile_command(objects, source))
            words.insert(next(i for i, word in enumerate(words) if word.startswith("-I")), f"-I{scratch}")
            words[words.index("-o") + 1] = str(scratch / "mutant.o")
            if file.suffix != ".cuh":
                words = [str(mutated) if word == original else word for word in words]
            subprocess.run([*words, "-Wno-error"], cwd=self.build, check=True)
            replaced = rf"\S*{objects}\.dir/\S*{re.escape(source)}\.o"
            return next((said for test, cases in tests if (said := self.test(scratch, test, cases, replaced))), "")

    def test(self, scratch, test, cases, replaced):
        # First of all objects: of what several define, the linker takes the first. An archive keeps what is replaced.
        link = re.sub(replaced, "", self.link_command(test))
        link = re.sub(r"(\S+\.o )", rf"-Wl,--allow-multiple-definition {scratch}/mutant.o \1", link, count=1)
        link = link.replace(f"-o tests/{test}", f"-o {scratch}/{test}", 1)
        subprocess.run(["sh", "-c", link], cwd=self.build, check=True)
        try:
            result = subprocess.run([scratch / test, "--filenames-as-tags", cases, "--abort"], stdout=subprocess.PIPE,
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
    mutants = Mutants(Path(sys.argv[1]).resolve())
    count = survivors = 0
    for file, number, call, objects, tests in sites(sys.argv[2:]):
        said = verdict(mutants.run(file, number, objects, tests))
        count += 1
        survivors += said == "SURVIVED"
        print(f"{file}:{number:<4} without {call:<40} {said}", flush=True)
    print(f"{count} mutants, {survivors} survived")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
