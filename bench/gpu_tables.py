#!/usr/bin/env python3
"""Makes bench/results/gpu_*.json from the logs of bench/on_gpu.sh. The tables compare the kernels with the libraries and with
the memory's speed, and a training step with PyTorch's, each with its goal. Others have the ladders, step by step.

    gpu_tables.py OUT       the folder that on_gpu.sh wrote; parts that are not done are left out
"""

import json
import re
import statistics
import sys
from pathlib import Path

import results

BATCH = 512  # as in cuda_ladders.cpp
DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
# The goals: the least fraction, or multiple, of the other's speed.
MATMUL, CONV, BANDWIDTH, EAGER, EAGER_SMALL, COMPILED = 0.9, 0.8, 0.85, 1.35, 2.0, 1.05


def document(out, part):
    """The JSON document in a part's log, which has other output, too; None unless the part is done."""
    if not (out / f"{part}.done").exists():
        return None
    text = (out / f"{part}.log").read_text()
    begin = re.search(r"^\{", text, re.MULTILINE)
    if not begin:
        sys.exit(f"gpu_tables: {out / part}.log has no line that begins with {{, expected a JSON document")
    return json.JSONDecoder().raw_decode(text, begin.start())[0]


def ladder_documents(out):
    """The output of the parts of cuda_ladders as one document, or None if none is done."""
    parts = [found for name in ("matmul", "conv2d", "bandwidth", "vendors") if (found := document(out, f"ladders-{name}"))]
    if not parts:
        return None
    whole = {**parts[0], "rows": [], "against_vendors": []}
    for part in parts:
        whole["rows"] += part["rows"]
        whole["against_vendors"] += part["against_vendors"]
    return whole


def peer_document(out, work):
    """PyTorch's configurations of both kinds for the same work; None if neither is done."""
    parts = [found for kind in ("eager", "compiled") if (found := document(out, f"{work}-{kind}"))]
    return {**parts[0], "configurations": [row for part in parts for row in part["configurations"]]} if parts else None


def goal_row(name, ours, theirs, ratios, goal, show):
    """ratios: our speed divided by the other's. The least of them must reach the goal."""
    spread = f" ({show(min(ratios))} at least)" if len(ratios) > 1 else ""
    return [name, ours, theirs, show(statistics.median(ratios)) + spread,
            f"{show(goal)}, {'reached' if min(ratios) >= goal else 'missed'}"]


def percent(ratio):
    return f"{100 * ratio:.1f} %"


def times(ratio):
    return f"{ratio:.2f}×"


def library_goals(ladders):
    calls = [(*call["call"].split()[:2], call) for call in ladders["against_vendors"]]

    def of(kernel, dtype):
        return [call for name, first, call in calls if name == kernel and first.startswith(dtype + "[")]

    for dtype in ("bfloat16", "float32"):
        for call in of("matmul", dtype):
            rate = 2 * 4096**3 * 1e-6  # by microseconds: TFLOP/s
            yield goal_row(f"matrix product of 4096, {DTYPES[dtype]}", f"{rate / call['native_us']:.1f} TFLOP/s",
                           f"{rate / call['vendor_us']:.1f}, cuBLAS", [call["of_vendor"]], MATMUL, percent)
    for dtype in ("bfloat16", "float32"):
        for kernel, title in (("conv2d", "y"), ("conv2d_backward_input", "dx"), ("conv2d_backward_weight", "dw")):
            layers = [call for call in of(kernel, dtype)
                      if kernel != "conv2d_backward_input" or f"[{BATCH},3," not in call["call"]]
            if layers:
                ours, theirs = (sum(layer[key] for layer in layers) * 1e-3 for key in ("native_us", "vendor_us"))
                yield goal_row(f"{len(layers)} convolutions, {title}, {DTYPES[dtype]}", f"{ours:.2f} ms",
                               f"{theirs:.2f}, cuDNN", [layer["of_vendor"] for layer in layers], CONV, percent)


def bandwidth_goals(ladders):
    for row in ladders["rows"]:
        if "of_copy" in row:
            rate = row["gigabytes_per_second"]
            yield goal_row(f"{row['kernel']}, {DTYPES[row['dtype']]}", f"{rate:,.0f} GB/s",
                           f"{rate / row['of_copy']:,.0f}, a copy", [row["of_copy"]], BANDWIDTH, percent)


def training_goals(ours, peer):
    rate, small = ours["images_per_second"], ours["batch"] <= 128
    rates = {row["name"]: peer["batch"] / row["median_ms"] * 1e3 for row in peer["configurations"] if "median_ms" in row}
    for title, goal, compiled in (("eager", EAGER_SMALL if small else EAGER, False), ("torch.compile", COMPILED, True)):
        best = max((value for name, value in rates.items() if name.startswith("compile") == compiled), default=None)
        if best:
            yield goal_row(f"{ours['model']}, batch {ours['batch']}, {ours['dtype']}", f"{rate:,.0f} images/s",
                           f"{best:,.0f}, PyTorch, {title}", [rate / best], goal, times)


def ladder(rows, columns):
    """A table of TFLOP/s, a row per step; columns: title -> (which rows, which of their numbers)."""
    steps = list(dict.fromkeys(row["step"] for row in rows))

    def cell(step, chosen, key):
        rates = [row[key] for row in rows if row["step"] == step and chosen(row)]
        if not rates:
            return "–"
        low, high = f"{min(rates):.1f}", f"{max(rates):.1f}"
        return low if low == high else f"{low}–{high}"

    return ["", *columns], [[step, *(cell(step, *column) for column in columns.values())] for step in steps]


def save_ladders(ladders, machine):
    def of(kernel):
        rows = [row for row in ladders["rows"] if row["kernel"] == kernel]
        return rows, [(dtype, DTYPES[dtype]) for dtype in dict.fromkeys(row["dtype"] for row in rows)]

    rows, dtypes = of("matmul")
    sizes = sorted({row["size"] for row in rows})
    results.save("gpu_matmul", "Matrix products on a GPU, step by step: TFLOP/s",
                 *ladder(rows, {f"{title}, {size}": (lambda row, size=size, dtype=dtype:
                                                     (row["size"], row["dtype"]) == (size, dtype), "tflops")
                                for dtype, title in dtypes for size in sizes}), machine=machine, details=rows)
    rows, dtypes = of("conv2d")
    results.save("gpu_conv2d", "Six convolutions of ResNet-18 on a GPU, step by step: TFLOP/s, least and most of the layers",
                 *ladder(rows, {f"{title}, {what}": (lambda row, dtype=dtype: row["dtype"] == dtype, key)
                                for dtype, title in dtypes
                                for what, key in (("y", "tflops"), ("dx", "tflops_backward_input"),
                                                  ("dw", "tflops_backward_weight"))}), machine=machine, details=rows)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    rows, versions, details, gpu = [], {}, {}, None
    if ladders := ladder_documents(out):
        gpu, details["against_vendors"] = ladders["gpu"], ladders["against_vendors"]
        versions |= dict(library.rsplit(" ", 1) for library in ladders["vendors"])
        rows += [*library_goals(ladders), *bandwidth_goals(ladders)]
    # Not in float32, where both sides run cuDNN's own kernels.
    for work in ("resnet18-bf16", "resnet18-bf16-128", "resnet20-bf16-128"):
        ours, peer = document(out, work), peer_document(out, work)
        if ours and peer:
            gpu, details[work] = ours["processor"], {"ringgrad": ours, "PyTorch": peer}
            versions["PyTorch"] = peer["peer"].removeprefix("PyTorch ")
            rows += training_goals(ours, peer)
    if not rows:
        sys.exit(f"gpu_tables: {out} has neither ladders-….done nor resnet18-….done; run bench/on_gpu.sh BUILD {out}")
    driver = re.search(r"Driver Version: (\S+)", (out / "gpu.log").read_text())
    machine = gpu + (f", driver {driver[1]}" if driver else "")
    results.save("gpu_goals", "On a GPU: kernels against the libraries', training steps against PyTorch's",
                 ["", "ringgrad", "against", "speed", "goal"], rows, versions, details=details, machine=machine,
                 note="speed: ours relative to the other's. Convolutions: six of ResNet-18's 3×3 ones at batch "
                 f"{BATCH} (dx: without the first layer's, which training does not compute). Their rows have the sum of the "
                 "times, the median of the speeds, and the lowest speed, which must reach the goal.")
    if ladders:
        save_ladders(ladders, machine)


if __name__ == "__main__":
    main()
