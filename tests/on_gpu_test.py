#!/usr/bin/env python3
"""Tests bench/on_gpu.sh without a GPU: programs that answer at once replace those that it runs.

Correctness is checked before speed. A part that was left out is not called passed. Parts that an archive of an earlier
run has done are not done again. A part that fails is reported, and keeps its earlier output.

    on_gpu_test.py
"""

import os
import subprocess
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
    "build/tests/autotune_test": "echo ran",
    "build/tests/cuda_test": "echo ran; case \"$2\" in *nccl*) echo 'left out for want of GPUs: 6 of 6 cases'; exit 77;; "
                             "*'#op_test'*) [ ! -e ../slow ] || kill -KILL $$;; esac",
    "bin/nvidia-smi": "echo 'Driver Version: 1'",
    "bin/sleep": "true",
    "bin/python3": "echo '{}'",
    "bin/compute-sanitizer": "true",
}


def run(place, out, *minutes):
    environment = {**os.environ, "PATH": f"{place}/bin:{os.environ['PATH']}"}
    environment.pop("RINGGRAD_DATA_DIR", None)
    done = subprocess.run(["sh", SCRIPT, place / "build", out, *minutes], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120)
    return done.returncode, done.stdout


def expect(condition, what, text):
    if not condition:
        raise SystemExit(f"on_gpu_test: expected {what}; on_gpu.sh said\n{text}")


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
        measured = order.index("resnet18-bf16")
        expect(order[:2] == ["gpu", "program"] and {"op", "cuda_nccl_faults", "train-digits"} <= set(order[:measured]),
               "what is right before what is fast", said)
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

        (place / "slow").touch()
        code, said = run(place, place / "slowly")
        expect("op: FAILED (137)" in said and "op-blocking" not in said, "no search for a fault that was not seen", said)

        (place / "bin" / "nvidia-smi").write_text("#!/bin/sh\necho another card")
        code, said = run(place, place / "second")
        expect("cuda_matmul: passed" in said, "nothing of another card called done", said)

        code, said = run(place, place / "third", "0")
        expect(code == 99 and "no time left" in said, "a run without time to say so", said)


if __name__ == "__main__":
    main()
