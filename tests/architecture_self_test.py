#!/usr/bin/env python3
"""Proves that each rule of architecture_test.py can fail: a small good tree passes, and every mutant of it is caught by
the rule meant for it, at the line meant, and by no other."""

import sys
import tempfile
from pathlib import Path

import architecture_test

GOOD = {
    ".gitignore": "/build*/\n*.log\n",
    "CMakeLists.txt": "ringgrad_folder(core)\nringgrad_folder(nn)\nringgrad_folder(distributed)\n",
    "README.md": "# small\n",
    "build/junk.h": '#include "nowhere.h"\n',  # ignored by git, so by the rules
    "core/tensor.h": "#pragma once\n",
    "core/check.h": "#pragma once\n",
    "core/kernels.h": "// add\nextern constinit Kernel<void(const Tensor& y,\n                 const Tensor& x)> add;\n",
    "core/cpu/add.cpp": '#include <Eigen/Core>\n#include "core/check.h"\n'
    "REGISTER_KERNEL(add, DeviceType::CPU, Provider::Native, add_cpu);\n",
    "cuda_kernels/runtime/stream.h": "#include <cuda_runtime.h>\ncudaStream_t of(int);\n",
    "cuda_kernels/add.cu": '#include "cuda_kernels/tile.cuh"\n__global__ void add_kernel() {}\n',
    "cuda_kernels/tile.cuh": "__device__ inline int tile() { return 1; }\n",
    "nn/module.h": '#include "core/tensor.h"\n',
    "nn/module.cpp": '#include "nn/module.h"\n// Eigen::Map here is prose, and #include "nn/none.h" too\n',
    "distributed/data_parallel.cpp": '#include "nn/module.h"\n',
    "distributed/nccl_process_group.cpp": '#include <nccl.h>\n#include "cuda_kernels/runtime/stream.h"\n',
    "tests/op_specs.cpp": '#include "nn/module.h"\nrow({.name = "add", .kernels = {"add"}});\n',
}

# rule, the file that breaks it, its text (None: delete), the path and line that must be reported
MUTANTS = [
    ("layers", "core/tensor.h", '#include "nn/module.h"\n', "core/tensor.h", 1),
    ("layers", "distributed/ring.cpp", '#include "core/tensor.h"\n#include "nn/module.h"\n', "distributed/ring.cpp", 2),
    ("layers", "distributed/ring.cpp", '#include "cuda_kernels/runtime/stream.h"\n', "distributed/ring.cpp", 1),
    ("layers", "nn/module.cpp", '#include "tests/op_specs.cpp"\n', "nn/module.cpp", 1),
    (
        "layers",
        "distributed/data_parallel.cpp",
        '#include "cuda_kernels/runtime/stream.h"\n',
        "distributed/data_parallel.cpp",
        1,
    ),
    ("roots", "nn/module.cpp", '#include "module.h"\n', "nn/module.cpp", 1),
    ("roots", "nn/module.cpp", "\n#include <nn/module.h>\n", "nn/module.cpp", 2),
    ("roots", "nn/module.cpp", '#include "../core/tensor.h"\n', "nn/module.cpp", 1),
    ("roots", "nn/module.cpp", '#include "nn/gone.h"\n', "nn/module.cpp", 1),
    ("vendors", "nn/module.cpp", "#include <Eigen/Core>\n", "nn/module.cpp", 1),
    ("vendors", "core/cpu/gemm.h", "#include <oneapi/dnnl/dnnl.hpp>\n", "core/cpu/gemm.h", 1),
    ("vendors", "core/tensor.h", "#include <cuda_runtime.h>\n", "core/tensor.h", 1),
    ("vendors", "distributed/ring.cpp", "#include <nccl.h>\n", "distributed/ring.cpp", 1),
    ("vendors", "core/tensor.h", "#pragma once\nstruct Tensor { Eigen::MatrixXf m; };\n", "core/tensor.h", 2),
    ("vendors", "nn/module.h", "void run(cudaStream_t);\n", "nn/module.h", 1),
    ("device_code", "tests/tile_test.cpp", '#include "cuda_kernels/tile.cuh"\n', "tests/tile_test.cpp", 1),
    ("device_code", "cuda_kernels/launch.h", "\n__global__ void launch();\n", "cuda_kernels/launch.h", 2),
    ("device_code", "core/add.cu", "// nothing\n", "core/add.cu", 1),
    ("lines", "tests/long.py", "pass\n" * 401, "tests/long.py", 401),
    ("lines", "core/long.cpp", "\n" * 401, "core/long.cpp", 401),
    ("macros", "nn/module.h", '#pragma once\n#include "core/check.h"\n', "nn/module.h", 2),
    ("top_level", "docs/map.md", "# map\n", "docs", 1),
    ("top_level", "notes.txt", "\n", "notes.txt", 1),
    ("objects", "CMakeLists.txt", "ringgrad_folder(core)\nringgrad_folder(nn)\n", "CMakeLists.txt", 1),
    (
        "kernels",
        "core/cpu/add.cpp",
        "// REGISTER_KERNEL(add, DeviceType::CPU, Provider::Native, add_cpu);\n",
        "core/kernels.h",
        2,
    ),
    (
        "kernels",
        "core/cpu/add.cpp",
        "REGISTER_KERNEL(add, DeviceType::CPU, Provider::Vendor, add_cpu);\n",
        "core/kernels.h",
        2,
    ),
    ("kernels", "tests/op_specs.cpp", 'row({.name = "add", .kernels = {"sub"}});\n', "core/kernels.h", 2),
    ("kernels", "tests/op_specs.cpp", None, "core/kernels.h", 2),
]


def breaches_of(files):
    """[(rule, path, line)] of a tree with these files."""
    with tempfile.TemporaryDirectory(prefix="architecture") as root:
        for path, text in files.items():
            if text is not None:
                file = Path(root) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
        results = architecture_test.check(root)
    return [(rule, breach.path, breach.line) for rule, _, breaches in results for breach in breaches]


def main():
    failures = []
    if found := breaches_of(GOOD):
        failures.append(f"the good tree is blamed: {found}")
    for rule, path, text, where, line in MUTANTS:
        found = breaches_of(GOOD | {path: text})
        if found != [(rule, where, line)]:
            failures.append(f"{rule}: {path} = {text!r:.60}: expected a breach at {where}:{line}, found {found}")
    untested = {rule.__name__ for rule in architecture_test.RULES} - {mutant[0] for mutant in MUTANTS}
    failures += [f"no mutant breaks the rule {rule}" for rule in sorted(untested)]
    for failure in failures:
        print(f"  {failure}")
    print(f"{len(MUTANTS) + 1 - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
