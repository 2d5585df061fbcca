#!/usr/bin/env python3
"""Makes a table of the steps of each CUDA kernel: the emulator's counts, nvcc's instructions per product, the least time that
an H200 would take, and the time of a GPU. Writes bench/results/kernel_*.json.

    kernels.py BUILD [--tools DIR] [--gpu OUT]

BUILD: a build folder that has ringgrad_counted. --tools: as for sass.py. OUT: the folder of on_gpu.sh's logs; without
it the times of the last run on a GPU stay, with their commit.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import gpu_tables
import results
import sass

BANDWIDTH, RATE_16, RATE_32 = 4.8e12, 989e12, 67e12  # an H200, by its data sheet
COLUMNS = ["", "", "requests", "sectors of a load", "of a store", "moved, × least", "passes, × least", "products",
           "SASS for each", "floor, µs", "took, µs"]
FRAGMENTS = "ladders/matmul_fragments"
# The steps on tensor cores, and where sass.py finds their loops.
PRODUCTS = {
    ("matmul", "fragments"): (FRAGMENTS, ["one_slice_kernelI13__nv_bfloat16Lb0ELi0E"]),
    ("matmul", "ldmatrix"): (FRAGMENTS, ["one_slice_kernelI13__nv_bfloat16Lb1ELi0E"]),
    ("matmul", "padded rows"): (FRAGMENTS, ["one_slice_kernelI13__nv_bfloat16Lb1ELi8E"]),
    ("matmul", "stages"): (FRAGMENTS, ["staged_kernelI13__nv_bfloat16E"]),
}
for name, kernel, step in (
        ("matrix product", "matmul", "tensor cores"), ("convolution, y", "conv2d", "tensor cores"),
        ("convolution, dx", "conv2d_backward_input", "tensor cores"), ("convolution, dw", "conv2d_backward_weight", "tensor cores"),
        ("convolution of an image, y", "conv2d", "shared image"),
        ("convolution of an image, dx", "conv2d_backward_input", "shared image"),
        ("convolution of an image, dw", "conv2d_backward_weight", "shared image"),
        ("convolution, Hopper, 64 channels, y", "conv2d", "hopper"),
        ("convolution, Hopper, 64 channels, dx", "conv2d_backward_input", "hopper"),
        ("convolution, Hopper, 64 channels, dw", "conv2d_backward_weight", "hopper"),
        ("matrix product, warp tiles", "matmul", "warp tiles"), ("matrix product, a warpgroup", "matmul", "warpgroup"),
        ("matrix product, a producer", "matmul", "producer"), ("matrix product, clusters", "matmul", "clusters"),
        ("matrix product, Hopper", "matmul", "hopper")):
    PRODUCTS[kernel, step] = next((source, parts) for n, source, parts, _ in sass.KERNELS if n == name)


def least(kernel, size, itemsize):
    """The least bytes to move, and the operations to do."""
    if kernel == "matmul":
        (n,) = size
        return 3 * n * n * itemsize, 2 * n**3
    if kernel.startswith("conv2d"):
        images, channels, filters, side, stride = size
        pixels = images * ((side - 1) // stride + 1) ** 2
        numbers = images * channels * side * side + filters * channels * 9 + pixels * filters
        return numbers * itemsize, 2 * pixels * filters * channels * 9
    if kernel == "batch_norm_stats":
        images, channels, side = size
        return images * channels * side * side * itemsize + 8 * channels, 3 * images * channels * side * side
    if kernel == "sum":
        return (size[0] + 1) * itemsize, size[0]
    numbers = size[0] if kernel == "copy" else size[0] * size[1]
    return 2 * numbers * itemsize, 0


def counted(program, *words):
    environment = {**os.environ, "RINGGRAD_CUDA_DEVICES": "1"}
    done = subprocess.run([program, "bench", "kernel", *words, "--json"], stdout=subprocess.PIPE, text=True, check=True,
                          env=environment)
    return json.loads(done.stdout)


def instructions_per_product(build, arch, tools_folder):
    """For each step on tensor cores, the number of its loop's instructions per product."""
    _, nvdisasm = sass.tools(tools_folder)
    found = {}
    with tempfile.TemporaryDirectory() as directory:
        for source in dict.fromkeys(source for source, _ in PRODUCTS.values()):
            code = sass.functions(nvdisasm, sass.compile_kernels(source, arch, build / "include", Path(directory)))
            for step, (of, parts) in PRODUCTS.items():
                if of == source:
                    instructions, labels = code[sass.kernel_with(code, source, parts)]
                    made_of = "HGMMA" if source.startswith("hopper/") else "HMMA"
                    length, count, _ = sass.main_loop(instructions, labels, made_of)
                    found[step] = f"{length / count:.1f}"
    return found


def ratio(count, of):
    return f"{count / of:.2f}" if of else "–"


def times_of(result):
    """Returns, by step, the GPU times of a table."""
    return {row[0].split(" ", 1)[1]: row[-1] for row in result["rows"]}


def times_from(result):
    earlier = re.search(r"Took: commit \S+\.", result["note"])
    return earlier.group() if earlier else f"Took: commit {result['commit']}."


def row_of(kernel, row, large, products, measured, kept):
    counts = row["counts"]
    loads, stores, shared = counts["global_load"], counts["global_store"], counts["shared_load"]
    itemsize = 4 if row["dtype"] == "float32" else 2
    bytes_moved, operations = least(kernel, large, itemsize)
    floor = 1e6 * max(bytes_moved / BANDWIDTH, operations / (RATE_32 if itemsize == 4 else RATE_16))
    passes, least_passes = (shared[key] + counts["shared_store"][key] for key in ("passes", "least_passes"))
    took = next((f"{found['microseconds']:,.0f}, {100 * found['of_floor']:.0f} % of the floor"
                 for found in measured if found["name"] == row["name"]), kept.get(row["name"], "not yet run on a GPU"))
    return [f"{row['step']} {row['name']}", gpu_tables.DTYPES[row["dtype"]], f"{loads['requests'] + stores['requests']:,}",
            ratio(loads["sectors"], loads["requests"]), ratio(stores["sectors"], stores["requests"]), f"{row['moved']:.2f}",
            ratio(passes, least_passes), f"{counts['instructions'].get('mma.sync', 0):,}",
            products.get((kernel, row["name"]), "–"), f"{floor:,.1f}", took]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--tools", type=Path)
    parser.add_argument("--gpu", type=Path)
    options = parser.parse_args()
    program = options.build / "ringgrad_counted"
    if not program.exists():
        sys.exit(f"kernels: no {program}; ninja -C {options.build} ringgrad_counted_program builds it")
    products = instructions_per_product(options.build, options.arch, options.tools)
    for ladder in counted(program)["kernels"]:
        kernel, large = ladder["kernel"], ladder["large"]
        document = counted(program, kernel)
        on_gpu = gpu_tables.document(options.gpu, f"kernel-{kernel}") if options.gpu else None
        for row in document["rows"]:  # this script's formulas are the ladders'
            itemsize = 4 if row["dtype"] == "float32" else 2
            assert least(kernel, document["size"], itemsize) == (row["bytes"], row["operations"]), (kernel, row)
        file = results.FOLDER / f"kernel_{kernel}.json"
        before = json.loads(file.read_text()) if file.exists() and not on_gpu else None
        kept = times_of(before) if before else {}
        rows = [row_of(kernel, row, large, products, on_gpu["rows"] if on_gpu else [], kept) for row in document["rows"]]
        names = ", ".join(ladder["sizes"])
        shown = [i for i in range(len(COLUMNS)) if any(row[i] not in ("–", "0") for row in rows)]
        results.save(
            f"kernel_{kernel}", f"{kernel}: {ladder['computes']}", [COLUMNS[i] for i in shown],
            [[row[i] for i in shown] for row in rows],
            machine=(f"{on_gpu['device']}, and an emulator's counts" if on_gpu
                     else before["machine"] if before else "no GPU: an emulator's counts"),
            note=f"Counts of {names} = {', '.join(map(str, document['size']))}; the floor of "
                 f"{', '.join(map(str, large))} on an H200." + (f" {times_from(before)}" if before else ""))


if __name__ == "__main__":
    main()
