"""Prints one JSON document to stdout, readable with one line per row, and describes the machine."""

import json
import os
import platform


def has_bfloat16():
    """True if the processor multiplies pairs of bfloat16 numbers."""
    return "avx512_bf16" in open("/proc/cpuinfo").read()


def machine():
    model = platform.processor()
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    bfloat16 = "" if has_bfloat16() else ", no bfloat16 instructions"
    return f"{model}, {os.cpu_count()} cores{bfloat16}, load {os.getloadavg()[0]:.1f}"


def show(header, key, rows):
    """Prints header's entries, and `key` with a list of one-line rows."""
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}," for name, value in header.items()]
    body = ",\n".join("    " + json.dumps(row) for row in rows)
    print("{", *lines, f"  {json.dumps(key)}: [\n{body}\n  ]", "}", sep="\n")
