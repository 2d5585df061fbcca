#!/usr/bin/env python3
"""Tests bench/on_gpu.sh without a GPU: programs that answer at once replace those that it runs.

Single kernels come first, then a step, then whether all is right; each part also alone. A part that was left out is not
called passed. Parts that an archive of an earlier run has done are not done again, PyTorch's not even for another program. A
part that fails is reported, and keeps its earlier output. The table comes last.

    on_gpu_test.py
"""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "bench" / "on_gpu.sh"
# Each says its arguments. In the folder of the runs, `broken`: the ladders fail; `slow`: the operations' tests are killed.
PROGRAMS = {
    "build/ringgrad": "case \"$*\" in *100000*) [ ! -e ../fault ] || { echo 'rank 1 is gone'; exit 5; };; esac\n"
                      "echo '1 CUDA device'; echo '{}'; echo 'parameters bit-identical on 2 of 2 ranks'; echo 'done 99'\n"
                      "while [ $# -gt 0 ]; do [ \"$1\" != --out ] || "
                      "{ mkdir -p \"$2\"; : >\"$2/checkpoint.safetensors\"; }; shift; done",
    "build/cuda_ladders": "echo '{}'; [ ! -e ../broken ]",
    "build/cuda_locks": "echo 'cudaStreamSynchronize: BLOCKED'",
    "build/cuda_nccl_death": "echo \"$*\"; case \"$*\" in 'graph pageable 2000') exit 3;; esac",
    "build/hopper_lab": "case \"$*\" in *conv2d*) exit 120;; esac; echo \"{\\\"asked\\\": \\\"$*\\\"}\"",
    "build/tests/autotune_test": "echo ran",
    "build/tests/cuda_test": "echo ran; case \"$2\" in *nccl*) echo 'left out for want of GPUs: 6 of 6 cases'; exit 77;; "
                             "*'#op_test'*) [ ! -e ../slow ] || kill -KILL $$;; esac",
    "bin/nvidia-smi": "echo 'Driver Version: 1'",
    "bin/sleep": "true",
    "bin/python3": "case \"$*\" in *lab_table.py*) echo 'the table';; *) echo '{}';; esac",
    "bin/ncu": "case \"$*\" in *--metrics*) exit 1;; esac; echo counted",
    "bin/compute-sanitizer": "true",
}


def run(place, out, *minutes, **variables):
    environment = {**os.environ, "PATH": f"{place}/bin:{os.environ['PATH']}", **variables}
    environment.pop("RINGGRAD_DATA_DIR", None)
    done = subprocess.run(["sh", SCRIPT, place / "build", out, *minutes], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120)
    return done.returncode, done.stdout


def expect(condition, what, text):
    if not condition:
        raise SystemExit(f"on_gpu_test: expected {what}; on_gpu.sh said\n{text}")


def check_table(place):
    """lab_table.py says what is wrong, and which prediction was."""
    shape, whole = "4096x4096x4096", {"kernel": "gemm", "shape": "4096x4096x4096", "right": True, "error": 0.002}
    log = place / "lab-gemm.log"
    log.write_text("a warning\n" + "\n".join(json.dumps(line) for line in (
        {"kernel": "probe", "variant": "plain", "shape": "64x64x16", "error": 0.0, "right": True},
        {"kernel": "probe", "variant": "shifted", "shape": "64x64x16", "error": 0.5, "right": False},
        {**whole, "variant": "cuBLAS", "cold_us": 170.0, "warm_us": 168.0, "tflops": 808.0},
        {**whole, "variant": "128x256", "cold_us": 340.0, "predicted_us": 190.0},
        {"kernel": "gemm", "variant": "late", "shape": shape, "left_out": "no time left"})) + "\n")
    said = subprocess.run([sys.executable, SCRIPT.parent / "lab_table.py", place], stdout=subprocess.PIPE, text=True,
                          check=True).stdout
    for text in ("1 of 2 probes", "probe shifted: WRONG by 0.5", "190.0!", "0.50×", "no time left"):
        expect(text in said, f"{text!r} in lab_table.py's table", said)


def main():
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        for name, body in PROGRAMS.items():
            program = place / name
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(f"#!/bin/sh\n{body}\n")
            program.chmod(0o755)
        (place / "broken").touch()
        code, said = run(place, place / "first")
        order = [line.split(":")[0] for line in said.splitlines() if ": " in line]
        first = ["gpu", "program", "lab-probe", "lab-copy", "lab-gemm", "counters-gemm"]
        expect(order[:len(first)] == first, "single kernels first", said)
        tests_begin = min(order.index(name) for name in ("op", "cuda_nccl_faults", "train-digits"))
        expect(order.index("counters-conv") < order.index("resnet18-bf16") < tests_begin < order.index("ladders-matmul"),
               "counters, a step, tests, ladders", said)
        expect("counters-gemm: passed" in said and "lab-conv2d" not in order, "counters though a metric lacks", said)
        expect(said.endswith("the table\n"), "the table at the end", said)
        expect("cuda_nccl: left out: left out for want of GPUs: 6 of 6 cases" in said, "NCCL's tests left out", said)
        expect("cuda_nccl: passed" not in said and "op: passed" in said, "that only to be called passed which has", said)
        tests = {path.stem.removesuffix("_test") for path in SCRIPT.parent.parent.glob("tests/*/*_test.cpp")
                 if "[cuda]" in path.read_text() and not path.stem.startswith("emulator_")} - {"vendor"}  # emulated
        left_out = tests - set(order)
        expect(tests and not left_out, f"all that a GPU can run, with {sorted(left_out)}", said)
        expect("ladders-matmul: FAILED (1)" in said, "the ladders to fail", said)
        # Two ranks end well in this run, where one that was killed would have to be missed.
        expect("nccl: passed" in said and "nccl-fault: FAILED" in said, "a fault that nobody notices to fail", said)
        expect(code == said.count("FAILED"), "the number of failures as exit status", f"{code}\n{said}")

        # On another machine, with nothing but the archive.
        (place / "second").mkdir()
        (place / "first" / "all.tgz").rename(place / "second" / "all.tgz")
        (place / "broken").unlink()
        (place / "fault").touch()
        code, said = run(place, place / "second")
        expect("cuda_matmul: done before" in said and "ladders-matmul: passed" in said, "only what was not done", said)
        expect("gpu: passed" in said, "a look at whether there is a GPU, each time", said)
        expect("nccl-fault: passed" in said, "a fault that the other rank notices to pass", said)
        with tarfile.open(place / "second" / "all.tgz") as archive:
            names = set(archive.getnames())
        expect({"./ladders-matmul.log", "./ladders-matmul.log.1", "./ladders-matmul.done"} <= names,
               "what it says and what it has said in the archive", f"{sorted(names)}\n{said}")

        # PyTorch's parts do not depend on the program.
        with (place / "build" / "ringgrad").open("a") as program:
            program.write("# another build\n")
        code, said = run(place, place / "second", PARTS="step")
        expect("resnet18-bf16: passed" in said and "resnet18-bf16-compiled: done before" in said,
               "PyTorch's parts once for a card and version", said)
        expect("op:" not in said and "lab" not in said and "counters" not in said, "one part alone", said)
        code, said = run(place, place / "second", PARTS="lab", LAB="stages epilogue")
        lab = (place / "second" / "lab-chosen.log").read_text()
        expect("lab-chosen: passed" in said and "stages epilogue" in lab and "lab-gemm" not in said, "chosen variants", said)
        code, said = run(place, place / "second", PARTS="locks,nccl_death")
        rows = [line for line in said.splitlines() if line.startswith("nccl-death-")]
        expect("locks: passed" in said and len(rows) == 18 and "op:" not in said, "the two probes alone", said)
        expect("nccl-death-graph-pageable-2000: FAILED (3)" in said and code == 1, "a rank that does not end to fail", said)
        code, said = run(place, place / "second", PARTS="lap")
        expect(code == 2 and "'lap'" in said, "an unknown part to be refused", said)

        (place / "slow").touch()
        code, said = run(place, place / "slowly", PARTS="tests")
        expect("op: FAILED (137)" in said and "op-blocking" not in said, "no search for a fault that was not seen", said)

        (place / "bin" / "nvidia-smi").write_text("#!/bin/sh\necho another card")
        code, said = run(place, place / "second", PARTS="tests")
        expect("cuda_matmul: passed" in said, "nothing of another card called done", said)

        (place / "table").mkdir()
        check_table(place / "table")
        code, said = run(place, place / "third", "0")
        expect(code == 99 and "no time left" in said, "a run without time to say so", said)


if __name__ == "__main__":
    main()
