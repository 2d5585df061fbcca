#!/usr/bin/env python3
"""The rules that keep ringgrad's shape, as a test.

Reads every code file of a source tree, parses its #include lines and counts its lines. It needs no compiler and nothing
but the standard library, so it is the first test to run. One line per rule, one line per breach:

    core/tensor.h:12: core may not include nn/module.h
        fix: core sees only core; move what you need down, or the user of it up

    architecture_test.py [ROOT]        checks the tree (default: the one this file lies in); exit status 1 on a breach
    architecture_test.py --self-test   feeds bad trees to each rule (architecture_self_test.py)
"""

import os
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True  # tests leave nothing behind

from architecture_names import names
from architecture_readmes import readmes
from architecture_sizes import FREE_FOLDERS, book, budget, columns, formatting, lines, one_a_line, summary, write_book
from architecture_words import words
from source_tree import ANGLED, OURS, Breach, Tree, each_line, without_comments

TOP_LEVEL = set(
    "CMakeLists.txt CMakePresets.json README.md CONTRIBUTING.md CHANGELOG.md CITATION.cff LICENSE go docs "
    "include core autograd cuda_kernels nn distributed data models program tests bench book".split()
)

# folder -> the folders it may include; the arrows of the design's diagram, transitively.
MAY_INCLUDE = {
    "core": {"core"},
    "autograd": {"autograd", "core"},
    "cuda_kernels": {"cuda_kernels", "core"},
    "data": {"data", "core"},
    "nn": {"nn", "autograd", "core"},
    "distributed": {"distributed", "autograd", "core"},
    "program": {"program", "models", "nn", "data", "distributed", "autograd", "core"},
    "models": {"models", "nn", "data", "distributed", "autograd", "core"},
    "include": {"models", "nn", "data", "distributed", "autograd", "core"},
}

# The rooms of a folder, from the bottom up: each sees itself, what stands in the lines above it, and nothing else of the
# folder. A name is a room's, or a file's of the folder's top level (without its suffix), or both's. What is not named
# stands above all of them.
ROOMS = {
    "core": [
        "base error",
        "device",
        "dtype",
        "scalar shape",
        "tensor overlap factory sequences random random_tensors generator_scope kernels program_observer",
        "reference further",
        "cpu",
    ],
    "data": ["sampler split image_dataset batch", "batch_source formats", "loading synthetic", "datasets workers"],
    "program": ["console command misunderstanding", "weights", "run", "train", "report", "bench", "trace", "commands", "explain", "learn", "lint", "gan", "reinforce", "speedrun"],
    "distributed": [
        "os",
        "processes networks",
        "failure",
        "job",
        "starters",
        "transport",
        "checksums blame",
        "rendezvous",
        "agreement",
        "elastic",
        "launcher",
        "work process_group group_values",
        "collectives",
        "process_groups",
        "other_collectives point_to_point shared_memory",
        "vendor_groups",
        "buckets",
        "zero",
        "comm_hook",
        "ddp",
        "shards",
        "planner",
        "lint",
    ],
}
# Rooms of the program that a build may lack, and what only they use of models/.
LEFT_OUT = re.compile(r"^(?:program|models)/(explain|learn|lint|gan|reinforce|speedrun)[/.]")
# The headers of core that the rooms below may include: these rooms move bytes, and cannot name a
# tensor.
WITHOUT_TENSORS = {"os", "processes", "networks", "failure", "job", "starters", "transport", "checksums", "blame", "rendezvous", "elastic", "launcher"}
CORE_WITHOUT_TENSORS = re.compile(r"^core/(base/|(error|dtype|device|kernels/reduction)\.h$)")


# Vendor libraries: which include lines are theirs, which names in code are, and who may use them.
CPU_VENDOR_INCLUDE = re.compile(r"^(unsupported/)?Eigen/|^(oneapi/)?dnnl")
CUDA_VENDOR_INCLUDE = re.compile(
    r"^(cuda|cublas|cudnn|cufft|curand|cusparse|cusolver|nccl|nvtx|nvml|nvrtc|nvToolsExt|mma\.h|cooperative_groups"
    r"|device_launch_parameters|cub/|thrust/|cutlass/|cute/)"
)
NCCL_FILE = re.compile(r"^distributed/vendor_groups/nccl_\w+\.cpp$")
VENDOR_NAME = re.compile(
    r"\b(Eigen::|dnnl::|dnnl_\w+|(cuda|cublas|cublasLt|cudnn|nccl)[A-Z]\w*_t\b|CU(stream|event)\b)"
)
DEVICE_CODE = re.compile(r"\b__(global|device|shared)__\b")


# -- the rules: each takes a Tree and returns (how many things it looked at, breaches) -------------------------------


def layers(tree):
    """A folder includes only the folders below it."""
    breaches = []
    seen = 0
    for source in tree.cpp:
        for line, path, _ in source.includes:
            target = path.split("/")[0]
            if (
                source.folder in FREE_FOLDERS
                or target not in MAY_INCLUDE.keys() | FREE_FOLDERS
                or path not in tree.paths
            ):
                continue
            seen += 1
            allowed = set(MAY_INCLUDE.get(source.folder, ()))
            name = source.path.split("/")[-1]
            if source.folder == "distributed" and re.search(r"(data_parallel|sharded_optimizer|sync_batch_norm|virtual_ranks)\.(h|cpp)$", name):
                allowed.add("nn")  # what wraps or changes a Module, or an Optimizer
            if NCCL_FILE.match(source.path) and path.startswith("cuda_kernels/runtime/"):
                continue  # the only arrow into cuda_kernels
            if target not in allowed:
                sees = ", ".join(sorted(allowed)) or "nothing"
                breaches.append(
                    Breach(
                        source.path,
                        line,
                        f"{source.folder} may not include {path}",
                        f"{name} sees only {sees}; move what it needs down, or the code that needs it up",
                    )
                )
    return seen, breaches


def room_of(path):
    """(folder that has rooms, room): ("distributed", "transport") for distributed/transport/frame.h, ("distributed",
    "failure") for distributed/failure.cpp, (None, None) where there are no rooms."""
    for folder in ROOMS:
        if path.startswith(folder + "/"):
            return folder, os.path.splitext(path[len(folder) + 1 :].split("/")[0])[0]
    return None, None


def rooms(tree):
    """A room includes only the rooms below it; those that move bytes know no tensors."""
    breaches = []
    seen = 0
    floors = {
        folder: {name: floor for floor, names in enumerate(lines) for name in names.split()}
        for folder, lines in ROOMS.items()
    }
    for source in tree.cpp:
        for line, path, _ in source.includes:
            folder, room = room_of(source.path)
            if folder is None or path not in tree.paths:
                continue
            seen += 1
            floor = floors[folder]
            their_folder, their_room = room_of(path)
            if their_folder == folder:
                above = len(floor)
                mine, theirs = floor.get(room, above), floor.get(their_room, above)
                if mine < theirs:
                    below = ", ".join(name for name in floor if floor[name] <= mine)
                    fix = f"{room} sees only {below}; move what it needs down, or the code that needs it up"
                    breaches.append(Breach(source.path, line, f"{room} may not include {path}", fix))
            elif folder == "distributed" and room in WITHOUT_TENSORS and path.startswith("core/"):
                if not CORE_WITHOUT_TENSORS.match(path):
                    fix = "rooms below process_group.h move bytes; what knows tensors belongs to collectives or above"
                    breaches.append(Breach(source.path, line, f"{room} may not include {path}", fix))
    return seen, breaches


def optional(tree):
    """Nothing includes a room that a build may lack, but itself: it registers what it has with what is below."""
    breaches = []
    for source in tree.cpp:
        own = LEFT_OUT.match(source.path)
        for line, path, _ in source.includes:
            room = LEFT_OUT.match(path)
            if room and source.folder not in FREE_FOLDERS and (not own or own[1] != room[1]):
                fix = f"a build may lack {room[1]}; let it register what you need of it (program/commands/job_judge.h)"
                breaches.append(Breach(source.path, line, f"{path} may not be there", fix))
    return len(tree.cpp), breaches


def roots(tree):
    """Project headers are included as "ringgrad/folder/name.h", and what is so included exists."""
    breaches = []
    seen = 0
    for source in tree.cpp:
        here = os.path.dirname(source.path)
        for line, path, form in source.includes:
            seen += 1
            beside = os.path.normpath(os.path.join(here, path)).replace(os.sep, "/")
            ours = next((p for p in (path, beside) if p in tree.paths), None)
            known = path in tree.paths or f"include/ringgrad/{path}" in tree.paths
            if form == ANGLED:
                right = path not in tree.paths
            else:
                right = form == OURS and known
            if not right:
                fix = f'write #include "ringgrad/{ours}"' if ours else "use <…> for other libraries; else create the file"
                breaches.append(Breach(source.path, line, f"{path} is not included as \"ringgrad/…\" from the root", fix))
    return seen, breaches


def vendors(tree):
    """Eigen and oneDNN only in core/cpu/**.cpp (oneDNN in its folder), CUDA only in cuda_kernels, NCCL's files and
    the measurements of CUDA itself, no vendor type in a header that another folder could include."""
    breaches = []
    for source in tree.cpp:
        in_onednn = source.path.startswith("core/cpu/onednn/")
        on_cpu = in_onednn or (source.path.startswith("core/cpu/") and source.suffix == ".cpp")
        on_cuda = source.folder == "cuda_kernels" or NCCL_FILE.match(source.path) or source.path.startswith("bench/cuda_")
        for line, path, form in source.includes:
            if CPU_VENDOR_INCLUDE.match(path) and not on_cpu:
                breaches.append(
                    Breach(
                        source.path,
                        line,
                        f"{path} outside core/cpu/**.cpp",
                        "call a kernel of core/kernels.h; in a header, hide the type behind a pointer",
                    )
                )
            if form == ANGLED and CUDA_VENDOR_INCLUDE.match(path) and not on_cuda:
                breaches.append(
                    Breach(
                        source.path,
                        line,
                        f"{path} outside cuda_kernels",
                        "use core/device.h, core/device.h, or a kernel of core/kernels.h",
                    )
                )
        if source.is_header and source.folder != "cuda_kernels" and not in_onednn:
            for line, name in each_line(source, VENDOR_NAME):
                breaches.append(
                    Breach(
                        source.path,
                        line,
                        f"vendor type {name} in a header",
                        "keep it in the .cpp; a header shows our types only",
                    )
                )
    return len(tree.cpp), breaches


def device_code(tree):
    """Device code is in .cu and .cuh files only. Only cuda_kernels, its tests and its laboratory include a .cuh."""
    breaches = []
    for source in tree.cpp:
        for line, path, _ in source.includes:
            if path.endswith(".cuh") and source.folder != "cuda_kernels" and not source.path.startswith(
                ("tests/cuda/emulator_", "bench/hopper_lab_")
            ):
                breaches.append(
                    Breach(
                        source.path,
                        line,
                        f"{path} is private to cuda_kernels",
                        "call the kernel through core/kernels.h",
                    )
                )
        if source.suffix in (".cuh", ".cu") and source.folder not in ("cuda_kernels", "tests", "bench"):
            breaches.append(
                Breach(source.path, 1, "device code outside cuda_kernels", "move the file to cuda_kernels/")
            )
        if source.suffix in (".cpp", ".h") and not source.path.startswith("cuda_kernels/emulator/"):
            for line, name in each_line(source, DEVICE_CODE):
                breaches.append(
                    Breach(source.path, line, f"{name} in a {source.suffix} file", "device code lives in .cu and .cuh")
                )
    return len(tree.cpp), breaches


def macros(tree):
    """CHECK and ASSERT are common names: no header brings them into a user's program."""
    breaches = [
        Breach(s.path, line, "a header includes core/base/check.h", "throw from the .cpp, or throw the typed error by hand")
        for s in tree.cpp
        if s.is_header
        for line, path, _ in s.includes
        if path == "core/base/check.h"
    ]
    return sum(s.is_header for s in tree.cpp), breaches


PARSES_JSON = re.compile(r"\bjson::(sax_)?parse\(|\bjson::accept\(")
PARSERS = ("program/console/json_text.cpp", "nn/safetensors_header.cpp")


def documents(tree):
    """JSON is read where the depth of its brackets is bounded: nlohmann's functions call themselves for each level."""
    sources = [s for s in tree.cpp if s.folder not in ("tests", "bench") and s.path not in PARSERS]
    breaches = [
        Breach(s.path, line, "JSON is parsed here", "json_from() or json_if_whole() of program/console/json_text.h")
        for s in sources
        for line, _ in each_line(s, PARSES_JSON)
    ]
    return len(sources), breaches


# These functions follow the locale that a program has chosen, in C++ or in C.
LOCALE_DEPENDENT = re.compile(
    r"(?<!Classic<)\bstd::[io]?(stringstream|fstream)\b(?!>)(?=\s*[\w({])"
    r"|\bsto([dfi]|ld|ll?|ull?)\(|\bstrto(d|f|ld|ll?|ull?)\(|\bato(f|i|ll?)\("
    r"|\bis(alpha|alnum|digit|space|upper|lower|print|punct|xdigit)\(|\bto(upper|lower)\("
    r"|\bstrftime\(|\bput_time\(|%[-+ #0-9.*]*[aAeEfFgG]\b[^\n]*\""
)
WRITES_TEXT = re.compile(r"^core/base/text\.h$")


def locales(tree):
    """The library writes and reads text in the same way in every locale; the program sets its own."""
    libraries = [
        s
        for s in tree.cpp
        if s.folder in MAY_INCLUDE and s.folder != "program" and not WRITES_TEXT.match(s.path)
    ]
    breaches = [
        Breach(s.path, line, f"{found.strip()} depends on the locale", "use what core/base/text.h has")
        for s in libraries
        for line, found in each_line(s, LOCALE_DEPENDENT)
    ]
    return len(libraries), breaches


def top_level(tree):
    """The top level holds what the design lists, and dot files."""
    names = tree.top_level()
    extra = [
        Breach(name, 1, "not part of the top level", "put it in a folder, or name it in .gitignore")
        for name in names
        if name not in TOP_LEVEL
    ]
    return len(names), extra


def objects(tree):
    """Every library folder is a CMake OBJECT library: files that only register themselves must survive linking."""
    cmake = "\n".join(s.text for s in tree.sources if s.path.endswith("CMakeLists.txt") or s.suffix == ".cmake")
    folders = sorted({s.folder for s in tree.cpp if s.suffix == ".cpp" and s.folder in MAY_INCLUDE})
    breaches = []
    for folder in folders:
        by_function = re.search(rf"^\s*ringgrad_folder\(\s*{folder}\b", cmake, re.M)
        if not by_function and not re.search(rf"add_library\(\s*\w*{folder}\w*\s+OBJECT", cmake):
            breaches.append(
                Breach("CMakeLists.txt", 1, f"{folder}/ is no OBJECT library", f"add ringgrad_folder({folder} …)")
            )
    return len(folders), breaches


def kernel_lists(text):
    """The names in a file's macros that apply the macro they are given to one kernel after the other, by macro."""
    macros = re.findall(r"#define (\w+)\((\w+)\)((?:.*\\\n)*.*)", text)
    return {macro: re.findall(rf"\b{each}\(\s*(\w+)", body) for macro, each, body in macros}


def registered_kernels(text, lists):
    """Kernels that a file registers for the CPU, by REGISTER_KERNEL or by a macro of its own around that, which may be
    applied to one of the lists."""
    native = r"REGISTER_KERNEL\(\s*(?:kernels::)?(\w+)\s*,\s*CPU\s*,\s*Native\b"
    names = set(re.findall(native, text))
    for macro, first, body in re.findall(r"#define (\w+)\((\w+)[^)]*\)((?:.*\\\n)*.*)", text):
        if first in re.findall(native, body):
            names.update(re.findall(rf"^{macro}\(\s*(\w+)", text, re.M))
            for applied in re.findall(rf"^(\w+)\({macro}\)", text, re.M):
                names.update(lists.get(applied, ()))
    return names


def mentioned_kernels(text):
    """Kernels that the rows of a file name, as "NAME" or, beside it, as NAME + "_backward"."""
    names = set(re.findall(r'"(\w+)"', text))
    return names | {name + "_backward" for name in names} if '+ "_backward"' in text else names


def kernels(tree):
    """Every kernel of the contract has a native CPU implementation and a row in the table of operation specs."""
    declared = []
    registered = set()
    tested = set()
    lists = {}
    for source in tree.cpp:
        if source.path.startswith("core/kernels/"):
            lists.update(kernel_lists(without_comments(source.text)))
    for source in tree.cpp:
        text = without_comments(source.text)
        if re.match(r"core/kernels(\w*\.h|/\w+\.h)$", source.path):
            for match in re.finditer(r"^KERNEL\(\s*(\w+)\s*,", text, re.M):
                declared.append((match[1], source.path, text.count("\n", 0, match.start()) + 1))
        elif source.path.startswith("core/cpu/"):
            registered |= registered_kernels(text, lists)
        elif re.match(r"tests/kernels/op_specs\w*\.cpp$", source.path):
            tested |= mentioned_kernels(text)
    breaches = []
    for name, path, line in declared:
        if name not in registered:
            fix = f"REGISTER_KERNEL({name}, CPU, Native, …) in core/cpu/"
            breaches.append(Breach(path, line, f"kernel {name} has no native CPU implementation", fix))
        if name not in tested:
            fix = f'name it in the .kernels = {{"{name}", …}} of the row that reaches it'
            breaches.append(Breach(path, line, f"kernel {name} is in no row of tests/kernels/op_specs*.cpp", fix))
    return 2 * len(declared), breaches


RULES = [
    *(layers, rooms, optional, roots, vendors, device_code, lines, columns, one_a_line, formatting, budget, book, readmes),
    *(macros, documents, locales, top_level, objects, kernels, names, words),
]


def check(tree):
    return [(rule.__name__, *rule(tree)) for rule in RULES]


def main(arguments):
    if arguments[:1] == ["--self-test"]:
        import architecture_self_test

        return architecture_self_test.main()
    if arguments[:1] == ["--write-book"]:
        return write_book(Tree(Path(__file__).resolve().parent.parent))
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    total_seen = total_failed = 0
    tree = Tree(root)
    print(summary(tree))
    for name, seen, breaches in check(tree):
        failed = len(breaches)
        total_seen, total_failed = total_seen + max(seen, failed), total_failed + failed
        print(f"{name}: {max(seen, failed) - failed} passed, {failed} failed")
        for breach in breaches:
            print(f"  {breach.path}:{breach.line}: {breach.what}\n      fix: {breach.fix}")
    print(f"{total_seen - total_failed} passed, {total_failed} failed")
    return 1 if total_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
