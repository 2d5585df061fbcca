#!/usr/bin/env python3
"""Measures where a training step's time goes, and compares it with the machine's limits, by `ringgrad bench train --profile`.
Writes bench/results/profile.json.

    profile.py [STEPS]      for each network (default 20)
"""

import sys

import results

WORK = [("resnet18", "ResNet-18", 64, "fp32"), ("resnet18", "ResNet-18", 64, "bf16"),
        ("resnet20", "ResNet-20", 128, "fp32"), ("resnet20", "ResNet-20", 128, "bf16"),
        ("cnn", "MNIST CNN", 100, "fp32"), ("cnn", "MNIST CNN", 100, "bf16")]
PHASES = ["forward", "backward", "optimizer"]  # zeroing the gradients takes next to nothing
KERNELS = 6  # the longest of each network
KEYS = ["calls", "operations", "bytes", "operations_ms", "bytes_ms"]


def rate(count, ms):
    return f"{count / ms * 1e-6:,.0f}" if count else "–"


def main():
    steps = sys.argv[1] if len(sys.argv) > 1 else 20
    rows, details = [], {}
    for model, title, batch, dtype in WORK:
        profile = results.ringgrad("bench", "train", "--model", model, "--batch", batch, "--dtype", dtype,
                                   "--steps", steps, "--profile")["profile"]
        details[f"{model} {dtype}"] = profile
        step, kernels = profile["step_ms"], profile["kernels"]
        phases = {phase["phase"]: phase for phase in profile["phases"]}
        total = {key: sum(kernel[key] for kernel in kernels) for key in KEYS}
        rest = {key: sum(kernel[key] for kernel in kernels[KERNELS:]) for key in (*KEYS, "ms")}
        for name, row in [(f"**{title}, batch {batch}, {dtype}**", {**total, "ms": step}),
                          *((f"*{phase}*", phases[phase]) for phase in PHASES),
                          *((kernel["kernel"], kernel) for kernel in kernels[:KERNELS]), ("other kernels", rest)]:
            rows.append([name, f"{row['calls']:,}", f"{row['ms']:.2f}", f"{100 * row['ms'] / step:.1f} %",
                         f"{row['operations_ms']:.2f}" if row["operations"] else "–", f"{row['bytes_ms']:.2f}",
                         rate(row["operations"], row["ms"]), rate(row["bytes"], row["ms"])])
        rows.append(["outside kernels", "", f"{profile['outside_kernels_ms']:.2f}",
                     f"{100 * profile['outside_kernels_ms'] / step:.1f} %", "", "", "", ""])
        print(title, dtype, f"{step:.1f} ms", file=sys.stderr)
    peaks = details["resnet18 fp32"]
    results.save("profile", "Where a training step's time goes",
                 ["phase or kernel", "calls", "ms", "share", "ms by operations", "ms by bytes", "GFLOP/s", "GB/s"], rows,
                 details=details,
                 note="By operations: the time for its operations at "
                 f"{peaks['peak_gflops']:,.0f} GFLOP/s ({peaks['peak_gflops_bf16']:,.0f} in bf16). By bytes: the time for its "
                 f"arguments' bytes at {peaks['bandwidth_gb_per_second']:.0f} GB/s. These rates are the machine's highest. "
                 "Operations are counted by the definition; Winograd's algorithm needs fewer. Bytes may come from a cache.")


if __name__ == "__main__":
    main()
