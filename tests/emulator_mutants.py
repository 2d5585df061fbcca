#!/usr/bin/env python3
"""Removes each barrier and each wait from the CUDA kernels, one at a time, and requires that a test notices.

    emulator_mutants.py BUILD_DIRECTORY [FILE ...]

A mutant is one kernel file, compiled without one line and linked into a copy of tests/emulator_racecheck, whose other
objects stay as they are. Prints a row for each; exit status 1 when one survives. Takes minutes, so ctest does not run
it. Needs a build with RINGGRAD_CUDA=emulated in which emulator_racecheck has been built.
"""

import json
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITE = re.compile(r"^\s*(__syncthreads\(\)|__pipeline_wait_prior\(.*\)|wait_for\(.*\));")
# Which kernel shows what a header's barrier is for, where its name does not say it.
COMPILED_IN = {
    "reduce.cuh": "softmax.cu",
    "channels.cuh": "batch_norm.cu",
    "simt_gemm.cuh": "conv2d.cu",
    "tensor_core_gemm.cuh": "matmul_tensor_cores.cu",
}


def sites(names):
    for path in sorted((ROOT / "cuda_kernels").glob("*.cu")) + sorted((ROOT / "cuda_kernels/common").glob("*.cuh")):
        if names and path.name not in names:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if match := SITE.match(line):
                yield path.relative_to(ROOT), number, match.group(1)


class Mutants:
    def __init__(self, build):
        self.build = build
        commands = json.loads((build / "compile_commands.json").read_text())
        self.compile = {
            Path(entry["file"]).name: entry["command"] for entry in commands if "checked_kernels" in entry["command"]
        }
        lines = subprocess.check_output(["ninja", "-t", "commands", "tests/emulator_racecheck"], cwd=build, text=True)
        self.link = lines.splitlines()[-1]

    def run(self, file, number):
        """What the tests say without line `number` of `file`; empty when they are content."""
        with tempfile.TemporaryDirectory() as directory:
            scratch = Path(directory)
            lines = (ROOT / file).read_text().splitlines()
            lines[number - 1] = ""
            mutated = scratch / file
            mutated.parent.mkdir(parents=True)
            mutated.write_text("\n".join(lines) + "\n")
            source = COMPILED_IN.get(file.name, file.name)
            original = str(ROOT / "cuda_kernels" / source)
            command = self.compile[source].replace(f"-I{ROOT} ", f"-I{scratch} -I{ROOT} ", 1)
            words = shlex.split(command)
            words[words.index("-o") + 1] = str(scratch / "mutant.o")
            if file.suffix == ".cu":
                words = [str(mutated) if word == original else word for word in words]
            subprocess.run(words, cwd=self.build, check=True)

            pattern = rf"\S*ringgrad_checked_kernels\.dir/{re.escape(source)}\.o"
            # First of all objects: of a template that several contain, the linker takes the first.
            link = re.sub(pattern, "", self.link)
            link = re.sub(r"(\S+\.o )", rf"{scratch}/mutant.o \1", link, count=1)
            link = link.replace("-o tests/emulator_racecheck", f"-o {scratch}/tests", 1)
            subprocess.run(["sh", "-c", link], cwd=self.build, check=True)
            result = subprocess.run(
                [scratch / "tests", "[emulated]", "--abort"], stdout=subprocess.PIPE, text=True, timeout=600
            )
            return result.stdout if result.returncode else ""


def verdict(output):
    if not output:
        return "SURVIVED"
    if match := re.search(r"race\s+in\s+\w+\s+memory", output):
        return " ".join(match.group(0).split())
    for sign, name in (("barrier", "barrier check"), ("error", "wrong result"), ("FAILED", "wrong result")):
        if sign in output:
            return name
    return "failed"


def main():
    mutants = Mutants(Path(sys.argv[1]).resolve())
    survivors = 0
    for file, number, call in sites(sys.argv[2:]):
        said = verdict(mutants.run(file, number))
        survivors += said == "SURVIVED"
        print(f"{file}:{number:<4} without {call:<32} {said}", flush=True)
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
