#!/usr/bin/env python3
"""Tabulates the error of each convolution algorithm against float64, which tests/kernels/conv_error_test.cpp prints. Writes
bench/results/conv_error.json.

    conv_error.py      after ninja -C build/release all_tests ringgrad_program

A build with -DCMAKE_CXX_FLAGS=-DRINGGRAD_EMULATE_BFLOAT16 multiplies pairs of bfloat16 numbers on any processor.
"""

import re
import subprocess
import sys

import results

PROGRAM = [results.ROOT / "build" / "release" / "tests" / "all_tests", "--filenames-as-tags", "[#conv_error_test]"]
ROW = re.compile(r"^(\S.*?) +(float32|bfloat16) +(direct|winograd) +(\S+) +(\S+) +(\S+)$")
METHODS = [(dtype, algorithm) for dtype in ("float32", "bfloat16") for algorithm in ("direct", "winograd")]


def main():
    if len(sys.argv) != 1:
        sys.exit(__doc__)
    printed = subprocess.run(PROGRAM, stdout=subprocess.PIPE, text=True, check=True).stdout
    layers = {}
    for row in filter(None, map(ROW.match, printed.splitlines())):
        layer, dtype, algorithm, *errors = row.groups()
        layers.setdefault(layer, {})[dtype, algorithm] = " / ".join(errors)
    results.save("conv_error", "Convolutions against float64: relative rms error of y / dx / dw",
                 ["", *(f"{dtype}, {algorithm}" for dtype, algorithm in METHODS)],
                 [[layer, *(errors[method] for method in METHODS)] for layer, errors in layers.items()],
                 note="Channels, image size and filter as in ResNets and the MNIST CNN. bfloat16 numbers are multiplied "
                      f"{results.ringgrad('doctor')['bfloat16_products']}; Winograd's algorithm multiplies those of 5×5 in float32.")


if __name__ == "__main__":
    main()
