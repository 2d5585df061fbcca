#!/usr/bin/env python3
"""Counts the instructions that nvcc generates for the main kernels of a training step, and predicts the step's time from them,
without a GPU. Writes bench/results/sass.json and step_model.json.

    sass.py BUILD [--arch sm_90] [--tools DIR] [--only PART]

PART: of a source's path: it prints the rows of such sources, and writes nothing.

BUILD: any build folder; the sources need the link in its include/. nvdisasm and cuobjdump are taken from DIR or the PATH;
the CUDA toolkit and Triton's package have them.

The model. A multiprocessor's four schedulers issue one instruction each cycle. A warp's product of 16 × 8 × 16 takes the
tensor cores of one scheduler 4 cycles at the card's full rate; mma.sync reaches 62 % of that, as measured by others. So a
loop with n instructions per product reaches at most 4 / max(n, 4 / 0.62) of the full rate. Kernels that move memory reach
85 % of the rate of a copy, and each launch in a graph takes 1.5 µs more.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import results

ROOT = Path(__file__).resolve().parent.parent
# An H200's rates: dense 16-bit products, and a copy.
FULL_RATE, COPY_RATE, LAUNCH = 989e12, 4.3e12, 1.5e-6
MMA_SYNC, MOVES = 0.62, 0.85
# The name, the file, the text that the mangled name must contain, and the instructions of the loop.
LARGE = "TensorCoreTileILi128ELi128ELi2ELi4ELi3EE"
SMALL = "TensorCoreTileILi64ELi64ELi2ELi2ELi3EE"
LDS, WIDE = r"\bLDS\b", r"LDG.*\.128"
KERNELS = [
    ("convolution, y", "conv2d_tensor_cores", [LARGE, "13__nv_bfloat16", "11PatchMatrix", "10ImageStore"], "HMMA"),
    ("convolution, dx", "conv2d_tensor_cores", [LARGE, "13__nv_bfloat16", "19GradientPatchMatrix"], "HMMA"),
    ("convolution, dw", "conv2d_tensor_cores", [LARGE, "13__nv_bfloat16", "12PartialStore"], "HMMA"),
    ("convolution, dw, small tile", "conv2d_tensor_cores", [SMALL, "13__nv_bfloat16", "12PartialStore"], "HMMA"),
    ("convolution of an image, y", "conv2d_shared_image", ["shared_image_kernelI13__nv_bfloat16Li32ELb0E"], "HMMA"),
    ("convolution of an image, dx", "conv2d_shared_image", ["shared_image_kernelI13__nv_bfloat16Li32ELb1E"], "HMMA"),
    ("convolution of an image, dw", "conv2d_shared_image_weight", ["weight_kernelI13__nv_bfloat16Li3ELi32E"], "HMMA"),
    ("convolution, Hopper, 64 channels, y", "hopper/conv2d", ["conv2d_border_64_kernelI13__nv_bfloat16Lb0E"], "HGMMA"),
    ("convolution, Hopper, 64 channels, dx", "hopper/conv2d", ["conv2d_border_64_kernelI13__nv_bfloat16Lb1E"], "HGMMA"),
    ("convolution, Hopper, 128 channels, y", "hopper/conv2d", ["conv2d_border_128_kernelI13__nv_bfloat16Lb0E"], "HGMMA"),
    ("convolution, Hopper, 128 channels, dx", "hopper/conv2d", ["conv2d_border_128_kernelI13__nv_bfloat16Lb1E"], "HGMMA"),
    ("convolution, Hopper, im2col, y", "hopper/conv2d", ["conv2d_im2col_kernelI13__nv_bfloat16", "Li256EEELb0E"], "HGMMA"),
    ("convolution, Hopper, im2col, dx", "hopper/conv2d", ["conv2d_im2col_kernelI13__nv_bfloat16", "Li256EEELb1E"], "HGMMA"),
    ("its sums, y, 64 channels", "hopper/conv2d", ["conv2d_border_64_kernelI13__nv_bfloat16Lb0E"], LDS),
    ("its sums, dx, 64 channels", "hopper/conv2d", ["conv2d_border_64_kernelI13__nv_bfloat16Lb1E"], LDS),
    ("its sums, y, 128 channels", "hopper/conv2d", ["conv2d_border_128_kernelI13__nv_bfloat16Lb0E"], LDS),
    ("its sums, dx, 128 channels", "hopper/conv2d", ["conv2d_border_128_kernelI13__nv_bfloat16Lb1E"], LDS),
    ("its sums, y, im2col", "hopper/conv2d", ["conv2d_im2col_kernelI13__nv_bfloat16", "Li256EEELb0E"], LDS),
    ("its sums, dx, im2col", "hopper/conv2d", ["conv2d_im2col_kernelI13__nv_bfloat16", "Li256EEELb1E"], LDS),
    ("convolution, Hopper, 64 channels, dw", "hopper/conv2d", ["conv2d_weight_border_kernelI13__nv_bfloat16E"], "HGMMA"),
    ("convolution, Hopper, dw", "hopper/conv2d", ["conv2d_weight_kernelI13__nv_bfloat16Li4E"], "HGMMA"),
    ("matrix product", "matmul_tensor_cores", [LARGE, "13__nv_bfloat16", "Lb1ELb0ELb1E"], "HMMA"),
    ("matrix product, warp tiles", "ladders/matmul_warp_tiles", ["warp_tiles_kernelI13__nv_bfloat16"], "HMMA"),
    ("matrix product, a warpgroup", "hopper/matmul_warpgroup", ["warpgroup_kernelI13__nv_bfloat16"], "HGMMA"),
    ("matrix product, a producer", "hopper/matmul_producer", ["producer_kernelI13__nv_bfloat16Li1E"], "HGMMA"),
    ("matrix product, clusters", "hopper/matmul_producer", ["producer_kernelI13__nv_bfloat16Li2E"], "HGMMA"),
    ("matrix product, Hopper", "hopper/matmul", ["gemm_kernelI13__nv_bfloat16", "Li256ELi4ELi2E", "Lb1ELb0EEEv"], "HGMMA"),
    ("matrix product, Hopper, narrow", "hopper/matmul", ["gemm_kernelI13__nv_bfloat16", "Li64ELi8ELi1E", "Lb1ELb0EEEv"],
     "HGMMA"),
    ("batch norm, statistics", "batch_norm", ["reduce_channels_kernelILi8E", "StatsReducer", "13__nv_bfloat16"], WIDE),
    ("batch norm, apply", "batch_norm", ["12apply_kernelILi8E13__nv_bfloat16"], "LDG"),
    ("batch norm, sums of the gradient", "batch_norm",
     ["reduce_channels_kernelILi8E", "BackwardReducer", "13__nv_bfloat16"], WIDE),
    ("batch norm, gradient", "batch_norm", ["backward_apply_kernelILi8E13__nv_bfloat16"], "LDG"),
    ("SGD", "optimizer_step", ["sgd_kernelIf"], "LDG"),
]


def compile_kernels(source, arch, include, folder):
    cubin = folder / f"{source.replace('/', '_')}.cubin"
    arch = "sm_90a" if source.startswith("hopper/") else arch  # wgmma and TMA
    done = subprocess.run(["nvcc", "-std=c++20", f"-arch={arch}", "--Werror=all-warnings", "-Xcompiler=-Wall,-Wextra",
                           f"-I{include}", "-cubin", "-o", cubin, ROOT / "cuda_kernels" / f"{source}.cu"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    # Without a warning, ptxas notes products that wait for each other because it does not understand their registers.
    if done.returncode or "serialized" in done.stdout:
        sys.exit(f"sass: nvcc compiles {source}.cu with this:\n{done.stdout}")
    return cubin


def usage(cuobjdump, cubin):
    """Registers, stack and shared memory of each function, by its mangled name."""
    text = subprocess.check_output([cuobjdump, "-res-usage", cubin], text=True)
    return {name: {key.lower(): int(value) for key, value in re.findall(r"(\w+):(\d+)", line)}
            for name, line in re.findall(r"Function (\S+):\n\s*(.*)", text)}


def functions(nvdisasm, cubin):
    """The instructions of each function, in order, and the positions of its labels."""
    name, code = None, {}
    for line in subprocess.check_output([nvdisasm, "-c", cubin], text=True).splitlines():
        if begin := re.match(r"\.text\.(\S+):", line):
            name = begin[1]
            code[name] = ([], {})
        elif name and (label := re.match(r"(\.L_\w+):", line)):
            code[name][1][label[1]] = len(code[name][0])
        elif name and (found := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?);", line)):
            code[name][0].append(found[1].strip())
    return code


def main_loop(instructions, labels, made_of):
    """The innermost of the loops that have most of these instructions: (all instructions, these, those of 16 bytes)."""
    def count(loop, pattern):
        return sum(bool(re.search(pattern, instruction)) for instruction in loop)

    loops = []
    for at, instruction in enumerate(instructions):
        target = re.search(r"BRA.*`\((\.L_\w+)\)", instruction)
        if target and labels.get(target[1], at + 1) <= at:
            loops.append(instructions[labels[target[1]]:at + 1])
    best = max(loops, key=lambda loop: (count(loop, made_of), -len(loop)), default=[])
    return len(best), count(best, made_of), count(best, made_of + r".*\.128")


def kernel_with(code, source, parts):
    """The mangled name of the kernel of a source that has these parts in it."""
    found = [mangled for mangled in code if all(part in mangled for part in parts)]
    if not found:
        sys.exit(f"sass: no kernel of {source}.cu has {parts} in its name: has it been renamed?")
    return min(found, key=len)


def tools(folder):
    """cuobjdump and nvdisasm, from the folder or the PATH."""
    found = [shutil.which(tool, path=folder) for tool in ("cuobjdump", "nvdisasm")]
    if not (all(found) and shutil.which("nvcc")):
        sys.exit("sass: nvcc, cuobjdump and nvdisasm are needed, of the CUDA toolkit; --tools DIR says where the latter are")
    return found


def rate_left(instructions_per_product, clocks=4, reachable=MMA_SYNC):
    """clocks: what a product takes at the full rate."""
    return clocks / max(instructions_per_product, clocks / reachable)


def row_of(name, made_of, code, used):
    """The row of a kernel, and the share of the full rate that its loop leaves; None for those that move memory."""
    length, count, wide = main_loop(*code, made_of)
    row = [name, str(used["reg"]), f"{used['stack']} B" if used["stack"] else "none", str(length)]
    if made_of in ("LDG", WIDE, LDS):
        loads = f"{wide or count} loads" + (" of 16 B" if wide or made_of == WIDE else "")
        return row + [loads, f"{length / max(1, wide or count):.1f}", "–"], None
    rate = rate_left(length / count)
    products = "products"
    if made_of == "HGMMA":  # each of a warpgroup's four warps issues it, on its own scheduler
        shape = next(re.search(r"HGMMA\.(\d+)x(\d+)x", line) for line in code[0] if "HGMMA" in line)
        rate = rate_left(length / count, int(shape[2]) // 2, 1)
        products += f" of {shape[1]} × {shape[2]}"
    return row + [f"{count} {products}", f"{length / count:.1f}", f"{100 * rate:.0f} %"], rate


def layers():
    """ResNet-18 on 32 × 32: (channels, filters, side of the output, taps, stride)."""
    yield 8, 64, 32, 9, 1  # three channels and five of zeros
    previous = 64
    for stage, channels in enumerate((64, 128, 256, 512)):
        side, stride = 32 >> stage, 2 if stage else 1
        yield previous, channels, side, 9, stride
        if stage:
            yield previous, channels, side, 1, stride
        for _ in range(3):
            yield channels, channels, side, 9, 1
        previous = channels


def step_model(rates, batch, launches):
    """Milliseconds of a captured step in bfloat16 by our own kernels, part by part."""
    products = {"y": 0.0, "dx": 0.0, "dw": 0.0}
    moved = {"batch norm, forward": 0.0, "batch norm, backward": 0.0}
    for i, (channels, filters, side, taps, stride) in enumerate(layers()):
        flop = 2.0 * batch * side * side * filters * channels * taps
        out, into = 2.0 * batch * side * side * filters, 2.0 * batch * side * side * stride * stride * channels
        for which in products:
            if which == "dx" and i == 0:
                continue
            bytes_moved = out + into
            products[which] += max(flop / FULL_RATE / rates[which], bytes_moved / (MOVES * COPY_RATE))
        moved["batch norm, forward"] += 3 * out
        moved["batch norm, backward"] += 7 * out
    for name in moved:  # every second block ends with an addition: of the residual, and in its gradient
        moved[name] += sum(2.0 * batch * side * side * filters for _, filters, side, taps, stride in layers()
                           if taps == 9 and stride == 1) / 2
    optimizer = 11.17e6 * 4 * 6
    parts = {f"convolutions, {which}": seconds for which, seconds in products.items()}
    parts |= {name: total / (MOVES * COPY_RATE) for name, total in moved.items()}
    blocks = (3, 2, 2, 1)  # with inputs of a stage's size; dx adds the gradient that arrived first
    parts["gradients of shortcuts, read by dx"] = sum(
        2.0 * batch * (32 >> s) ** 2 * (64 << s) * count for s, count in enumerate(blocks)) / (MOVES * COPY_RATE)
    parts["optimizer, zeros, weights' copies"] = optimizer * 1.6 / (MOVES * COPY_RATE)
    parts[f"{launches} launches"] = launches * LAUNCH
    return parts


def launches_of_step():
    text = (ROOT / "tests" / "cuda" / "cuda_launches_test.cpp").read_text()
    return int(re.search(r"counts\.launches <= (\d+)", text)[1])


def main():
    parser = argparse.ArgumentParser(usage=__doc__.replace("%", "%%"))
    parser.add_argument("build", type=Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--tools", type=Path)
    parser.add_argument("--only")
    options = parser.parse_args()
    cuobjdump, nvdisasm = tools(options.tools)
    rows, rates = [], {}
    with tempfile.TemporaryDirectory() as directory:
        for source in dict.fromkeys(source for _, source, _, _ in KERNELS if not options.only or options.only in source):
            cubin = compile_kernels(source, options.arch, options.build / "include", Path(directory))
            code, used = functions(nvdisasm, cubin), usage(cuobjdump, cubin)
            for name, of, parts, made_of in KERNELS:
                if of != source:
                    continue
                kernel = kernel_with(code, source, parts)
                row, rates[name] = row_of(name, made_of, code[kernel], used[kernel])
                rows.append(row)
    if options.only:
        for row in rows:
            print(" | ".join(row))
        return
    results.save("sass", f"What nvcc makes of the main kernels, {options.arch}, bfloat16: predictions",
                 ["", "registers", "spilled", "instructions of the loop", "of them", "instructions for each",
                  "at most, of the full rate"], rows, machine="no GPU: counted in SASS",
                 note="A loop is counted whole, including instructions that seldom run. For example, batch norm's last steps "
                 "compute a channel's factors in their loops when the channel changes.")
    products = {which: rates[f"convolution, {which}"] for which in ("y", "dx", "dw")}
    launches = launches_of_step()
    ours = step_model(products, 512, launches)
    library = step_model(dict.fromkeys(products, 0.5), 512, launches)
    rows = [[part, f"{1e3 * ours[part]:.2f}", f"{1e3 * library[part]:.2f}"] for part in ours]
    totals = [1e3 * sum(model.values()) for model in (ours, library)]
    rows.append(["a step", *(f"{total:.2f}" for total in totals)])
    rows.append(["images/s", *(f"{512e3 / total:,.0f}" for total in totals)])
    results.save("step_model", "A captured step of ResNet-18, batch 512, bfloat16, on an H200: milliseconds predicted",
                 ["", "by our kernels", "by convolutions at half the full rate"], rows, machine="no GPU: a model",
                 note=" ".join(__doc__.split("The model. ")[1].split()))


if __name__ == "__main__":
    main()
