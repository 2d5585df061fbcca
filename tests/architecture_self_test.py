#!/usr/bin/env python3
"""Proves that each rule of architecture_test.py can fail: a small good tree passes. Every mutant of it is caught by the
rule meant for it, at the line meant, and by no other."""

import shutil
import sys
import tempfile
from pathlib import Path

import architecture_sizes
import architecture_test
import architecture_words

GOOD = {
    ".gitignore": "/build*/\n*.log\n",
    ".clang-format": "DisableFormat: true\n",
    "CMakeLists.txt": "ringgrad_folder(core)\nringgrad_folder(nn)\nringgrad_folder(distributed)\nringgrad_book(distributed/os socket)\n",
    "README.md": "# small\n<!-- book -->\n| room | files |\n|---|---|\n| [distributed/os/](distributed/os/) | socket |\n<!-- end -->\n[not](nn/)\n",
    "CONTRIBUTING.md": "## Glossary\n\n| term | meaning | where it lives | not |\n| room | a folder | `nn/` | `chamber` |\n",
    "build/junk.h": '#include "ringgrad/nowhere.h"\n',  # ignored by git, so by the rules
    "core/tensor.h": "#pragma once\n",
    "core/base/check.h": "#pragma once\n",
    "core/base/check.cpp": "",
    "core/kernels.h": "// add\nKERNEL(add, (const Tensor& y,\n                 const Tensor& x));\n"
    "KERNEL(exp, (const Tensor&));\nKERNEL(exp_backward, ());\n",
    "core/cpu/add.cpp": '#include <Eigen/Core>\n#include "ringgrad/core/base/check.h"\n'
    "REGISTER_KERNEL(add, CPU, Native, add_cpu);\n",
    "core/cpu/exp.cpp": "#define UNARY(NAME, F) \\\n  REGISTER_KERNEL(NAME, CPU, Native, F);\n"
    "UNARY(exp, f)\nALL_BACKWARD(UNARY)\n",
    "core/kernels/lists.h": "#define ALL_BACKWARD(REGISTER) \\\n  REGISTER(exp_backward, g)\n",
    "cuda_kernels/runtime/stream.h": "#include <cuda_runtime.h>\ncudaStream_t of(int);\n",
    "cuda_kernels/add.cu": '#include "ringgrad/cuda_kernels/tile.cuh"\n__global__ void add_kernel() {}\n',
    "cuda_kernels/tile.cuh": "__device__ inline int tile() { return 1; }\n",
    "nn/module.h": '#include "ringgrad/core/tensor.h"\n',
    "nn/module.cpp": '#include "ringgrad/nn/module.h"\n// Eigen::Map here is prose, and #include "ringgrad/nn/no.h" too\n',
    "distributed/data_parallel.cpp": '#include "ringgrad/nn/module.h"\nnamespace ringgrad {\nclass Plan {\n};\n}  // namespace ringgrad\n',
    "distributed/os/socket.h": "#pragma once\n",
    "distributed/os/socket.cpp": '#include "ringgrad/distributed/os/socket.h"\n',
    "distributed/launch.cpp": "namespace ringgrad {\nnamespace {\nstruct Plan { int size; };\n}  // namespace\nvoid f() {\n}\nstruct Plan::Part {};\n}  // namespace ringgrad\n",
    "distributed/vendor_groups/nccl_process_group.cpp": '#include <nccl.h>\n#include "ringgrad/cuda_kernels/runtime/stream.h"\n',
    "program/train/training.h": "#pragma once\n",
    "program/lint/lint.h": "#pragma once\n",
    "program/lint/mistakes.h": '#include "ringgrad/program/lint/lint.h"\n',
    "tests/kernels/op_specs.cpp": '#include "ringgrad/nn/module.h"\nrow({.name = "add", .kernels = {"add"}});\n'
    'row.kernels = {op, op + "_backward"};\nrow(op = "exp");\n',
}

SPECS = GOOD["tests/kernels/op_specs.cpp"]
NATIVE_EXP = "REGISTER_KERNEL(exp, CPU, Native, f);\n"
# The other one stands in distributed/data_parallel.cpp; in an unnamed namespace, or nested, it would be fine.
ONE_TYPE = "namespace ringgrad {\nstruct Plan { int size; };\n}  // namespace ringgrad\n"
LONG_ARROW = '#include "ringgrad/cuda_kernels/runtime/stream.h"\n'

# Small ones, so that a mutant of a few lines goes beyond.
architecture_sizes.MAX_TOKENS = {"library": 300, "program": 300, "emulator": 300}
architecture_sizes.MAX_BOOK = 60
architecture_sizes.MAX_MIXED_ROOMS = 0
architecture_words.MAX_RELATIVE = 20
architecture_words.MAX_LONG_SENTENCES = 0

# rule, the file that breaks it and its text, the line that must be reported (and the file, where it is another one)
MUTANTS = [
    ("layers", "core/tensor.h", '#include "ringgrad/nn/module.h"\n', 1),
    ("layers", "distributed/collectives/ring.cpp", '#include "ringgrad/core/tensor.h"\n#include "ringgrad/nn/module.h"\n', 2),
    ("layers", "distributed/collectives/ring.cpp", LONG_ARROW, 1),
    ("layers", "distributed/data_parallel.cpp", LONG_ARROW, 1),
    ("layers", "nn/module.cpp", '#include "ringgrad/tests/kernels/op_specs.cpp"\n', 1),
    ("layers", "models/resnet.h", '#include "ringgrad/program/train/training.h"\n', 1),
    ("optional", "program/gan/gan.h", '#include "ringgrad/program/lint/lint.h"\n', 1),
    ("optional", "program/command_line.h", '#include "ringgrad/program/lint/lint.h"\n', 1),
    ("rooms", "program/run/recipe.h", '#include "ringgrad/program/train/training.h"\n', 1),
    ("rooms", "core/base/check.h", '#include "ringgrad/core/tensor.h"\n', 1),
    ("rooms", "distributed/transport/frame.cpp", '\n#include "ringgrad/distributed/data_parallel.cpp"\n', 2),
    ("rooms", "distributed/transport/frame.cpp", '#include "ringgrad/core/tensor.h"\n', 1),
    ("readmes", "nn/README.md", "# nn\n[gone](gone.h)\n", 2),
    ("readmes", "nn/README.md", "`Module::gone` is here\n", 1),
    ("readmes", "nn/README.md", "# nn\nsee `nn/gone.cpp`\n", 2),
    ("readmes", "nn/module.cpp", "\nint x;  // as in gone.h\n", 2),
    ("roots", "nn/module.cpp", '#include "module.h"\n', 1),
    ("roots", "nn/module.cpp", '#include "core/tensor.h"\n', 1),
    ("roots", "nn/module.cpp", "\n#include <ringgrad/nn/module.h>\n", 2),
    ("roots", "nn/module.cpp", '#include "../core/tensor.h"\n', 1),
    ("roots", "nn/module.cpp", '#include "ringgrad/nn/gone.h"\n', 1),
    ("vendors", "nn/module.cpp", "#include <Eigen/Core>\n", 1),
    ("vendors", "core/cpu/eigen_gemm.h", "#include <oneapi/dnnl/dnnl.hpp>\n", 1),
    ("vendors", "core/tensor.h", "#include <cuda_runtime.h>\n", 1),
    ("vendors", "distributed/collectives/ring.cpp", "#include <nccl.h>\n", 1),
    ("vendors", "core/tensor.h", "#pragma once\nstruct Tensor { Eigen::MatrixXf m; };\n", 2),
    ("vendors", "nn/module.h", "void run(cudaStream_t);\n", 1),
    ("device_code", "tests/tile_test.cpp", '#include "ringgrad/cuda_kernels/tile.cuh"\n', 1),
    ("device_code", "cuda_kernels/launch.h", "\n__global__ void launch();\n", 2),
    ("device_code", "core/add.cu", "// nothing\n", 1),
    ("lines", "tests/long.py", "pass\n" * 501, 501),
    ("lines", "core/long.cpp", "\n" * 501, 501),
    ("columns", "core/wide.cpp", "\nint " + "x" * 97 + ";\n", 2),
    ("one_a_line", "core/pair.cpp", "\nvoid f() {\n  const int a = 1, b = 2;\n}\n", 3),
    ("one_a_line", "core/pair.cpp", "\nvoid f() {\n  a.low = 1, a.high += g(2);\n}\n", 3),
    ("formatting", "tests/.clang-format", "ColumnLimit: 40\n", 2, "tests/kernels/op_specs.cpp"),
    ("budget", "core/long.cpp", "int x;\n" * 101, 1, "tests/architecture_sizes.py"),
    ("budget", "cuda_kernels/emulator/long.h", "#pragma once\n" + "int x;\n" * 101, 1, "tests/architecture_sizes.py"),
    ("book", "distributed/os/socket.h", "int x;\n" * (architecture_sizes.MAX_BOOK // 3 + 1), 1, "CMakeLists.txt"),
    ("book", "distributed/os/pipe.cpp", "int x;\n", 1, "CMakeLists.txt"),
    ("book", "distributed/os/socket.cpp", '#include "ringgrad/core/base/check.h"\n', 1),
    ("book", "README.md", "# small\n", 1),
    ("book", "CMakeLists.txt", GOOD["CMakeLists.txt"].replace("os socket", "os socket gone"), 1),
    ("macros", "nn/module.h", '#pragma once\n#include "ringgrad/core/base/check.h"\n', 2),
    ("documents", "nn/module.cpp", "\nauto f() { return nlohmann::json::parse(text); }\n", 2),
    ("locales", "nn/module.cpp", "\nvoid f() { std::ostringstream text; }\n", 2),
    ("locales", "nn/module.cpp", "std::ifstream in(path);\n", 1),
    ("locales", "nn/module.cpp", 'void f() { std::snprintf(text, 9, "%.4g", 0.5); }\n', 1),
    ("locales", "nn/module.cpp", "double f() { return std::stod(text); }\n", 1),
    ("locales", "nn/module.cpp", "bool f() { return std::isalpha(c); }\n", 1),
    ("top_level", "notes/map.md", "# map\n", 1, "notes"),
    ("top_level", "notes.txt", "\n", 1),
    ("objects", "CMakeLists.txt", "ringgrad_folder(core)\nringgrad_folder(nn)\n", 1),
    ("kernels", "core/cpu/add.cpp", "// " + GOOD["core/cpu/add.cpp"].splitlines()[-1], 2, "core/kernels.h"),
    ("kernels", "core/cpu/add.cpp", NATIVE_EXP.replace("Native", "Vendor"), 2, "core/kernels.h"),
    ("kernels", "core/cpu/exp.cpp", NATIVE_EXP, 5, "core/kernels.h"),
    ("kernels", "tests/kernels/op_specs.cpp", SPECS.replace('"add"', '"sub"'), 2, "core/kernels.h"),
    ("kernels", "tests/kernels/op_specs.cpp", SPECS.replace(' + "_backward"', ""), 5, "core/kernels.h"),
    ("names", "nn/module.cpp", "\n" + ONE_TYPE, 3),
    ("names", "tests/nn/module_test.cpp", "using namespace ringgrad;\n", 1),
    ("words", "nn/module.cpp", "int x;\n\n// Of modules.\nint y;\n// Which one?\nint z;\n", 1, "tests/architecture_words.py"),
    ("words", "tests/short.py", '"""What a test is."""\n\n\ndef f():\n    """Where it is."""\n', 1, "tests/architecture_words.py"),
    ("words", "nn/module.cpp", "// It is" + " so" * 29 + ".\n", 1, "tests/architecture_words.py"),
    ("words", "nn/module.cpp", "int x;\n// Modules live in\n// chambers.\n", 2),
    ("words", "nn/module.cpp", "int x;  // of this Chamber\n", 1),
    ("words", "tests/short.py", '"""A test of a chamber."""\n', 1),
    ("names", "tests/tile_test.cpp", ONE_TYPE.replace("{ int", "final { int"), 2),
]


def breaches_of(files):
    """[(rule, path, line)] of a tree with these files."""
    with tempfile.TemporaryDirectory(prefix="architecture") as root:
        for path, text in files.items():
            file = Path(root) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        results = architecture_test.check(architecture_test.Tree(root))
    return [(rule, breach.path, breach.line) for rule, _, breaches in results for breach in breaches]


def main():
    absent = set() if shutil.which("clang-format") else {"formatting"}
    mutants = [mutant for mutant in MUTANTS if mutant[0] not in absent]
    failures = []
    if found := breaches_of(GOOD):
        failures.append(f"the good tree is blamed: {found}")
    for rule, path, text, line, *elsewhere in mutants:
        expected = [(rule, elsewhere[0] if elsewhere else path, line)]
        if (found := breaches_of(GOOD | {path: text})) != expected:
            failures.append(f"{path} = {text!r:.60}: expected {expected}, found {found}")
    untested = {rule.__name__ for rule in architecture_test.RULES} - absent - {mutant[0] for mutant in mutants}
    failures += [f"no mutant breaks the rule {rule}" for rule in sorted(untested)]
    for failure in failures:
        print(f"  {failure}")
    print(f"{len(mutants) + 1 - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
