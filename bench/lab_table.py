#!/usr/bin/env python3
"""Prints a table of the lines that hopper_lab has written: prediction beside measurement, and what differs by more than 15 %.

    lab_table.py OUT        the folder of on_gpu.sh's logs, or one log
"""

import json
import sys
from pathlib import Path

WIDTH = 44


def lines(place):
    logs = sorted(place.glob("lab-*.log")) if place.is_dir() else [place]
    found = []
    for log in logs:
        found += [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return found


def cell(value, form):
    return form.format(value) if isinstance(value, (int, float)) else "–"


def verdict(line):
    if "failed" in line:
        return "FAILED: " + line["failed"][:60]
    if "left_out" in line:
        return line["left_out"]
    return "" if line.get("right", True) else f"WRONG by {line['error']}"


def clocks(line):
    waits = line.get("clocks_of_a_block")
    if not waits:
        return ""
    return ", ".join(f"{name.replace('_', ' ')} {100 * waits[name] / waits['all']:.0f} %" for name in waits if name != "all")


def table(found):
    library = {(line["kernel"], line["shape"]): line["cold_us"] for line in found
               if line["variant"] in ("cuBLAS", "cuDNN") and "cold_us" in line}
    yield f"{'':{WIDTH}} {'shape':>17} {'cold µs':>9} {'warm':>9} {'model':>9} {'TFLOP/s':>8} {'GB/s':>6} {'library':>8}"
    for line in found:
        if line["kernel"] == "probe":
            if verdict(line):
                yield f"probe {line['variant']}: {verdict(line)}"
            elif not line.get("error") == 0 and line.get("error", 0) == "not finite":
                yield f"probe {line['variant']}: not finite"
            continue
        cold, model = line.get("cold_us"), line.get("predicted_us")
        apart = "!" if cold and model and abs(cold / model - 1) > 0.15 else ""
        same = line["kernel"], line["shape"]
        against = library[same] / cold if cold and same in library else None
        yield (f"{line['kernel'] + ' ' + line['variant']:{WIDTH}} {line['shape']:>17} {cell(cold, '{:.1f}'):>9} "
               f"{cell(line.get('warm_us'), '{:.1f}'):>9} {cell(model, '{:.1f}') + apart:>9} {cell(line.get('tflops'), '{:.0f}'):>8} "
               f"{cell(line.get('gigabytes_per_second'), '{:.0f}'):>6} {cell(against, '{:.2f}×'):>8} {verdict(line)}{clocks(line)}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = lines(Path(sys.argv[1]))
    probes = [line for line in found if line["kernel"] == "probe"]
    if probes:
        right = sum("failed" not in line and line.get("right", True) for line in probes)
        print(f"{right} of {len(probes)} probes found what kernels rest on")
    for row in table(found):
        print(row.rstrip())
    if not found:
        print("no line of hopper_lab yet")


if __name__ == "__main__":
    main()
