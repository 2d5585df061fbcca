#!/usr/bin/env python3
"""Where a training step's time goes, and what the machine would need at least: `ringgrad bench train --profile`, to
bench/results/profile.json.

    profile.py [STEPS]      of each network (default 20)
"""

import sys

import results

WORK = [("resnet18", "ResNet-18", 64, "fp32"), ("resnet18", "ResNet-18", 64, "bf16"),
        ("resnet20", "ResNet-20", 128, "fp32"), ("resnet20", "ResNet-20", 128, "bf16")]
KERNELS = 6  # of each network, the longest


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
        total = {key: sum(kernel[key] for kernel in kernels) for key in ("calls", "bound_ms", "operations", "bytes")}
        rest = {key: sum(kernel[key] for kernel in kernels[KERNELS:]) for key in (*total, "ms")}
        for name, kernel in [(f"**{title}, batch {batch}, {dtype}**", {**total, "ms": step}),
                             *((kernel["kernel"], kernel) for kernel in kernels[:KERNELS]), ("other kernels", rest)]:
            rows.append([name, f"{kernel['calls']:,}", f"{kernel['ms']:.2f}", f"{100 * kernel['ms'] / step:.1f} %",
                         f"{kernel['bound_ms']:.2f}", rate(kernel["operations"], kernel["ms"]),
                         rate(kernel["bytes"], kernel["ms"])])
        rows.append(["outside kernels", "", f"{profile['outside_kernels_ms']:.2f}",
                     f"{100 * profile['outside_kernels_ms'] / step:.1f} %", "", "", ""])
        print(title, dtype, f"{step:.1f} ms", file=sys.stderr)
    peaks = details["resnet18 fp32"]
    results.save("profile", "Where a training step's time goes",
                 ["kernel", "calls", "ms", "share", "bound ms", "GFLOP/s", "GB/s"], rows, details=details,
                 note="bound: the longer of its operations at "
                 f"{peaks['peak_gflops']:,.0f} GFLOP/s ({peaks['peak_gflops_bf16']:,.0f} in bf16) and its arguments' bytes "
                 f"at {peaks['bandwidth_gb_per_second']:.0f} GB/s, which this machine does at most. Operations are those of "
                 "the definition, of which Winograd's algorithm needs fewer; bytes may come from a cache.")


if __name__ == "__main__":
    main()
