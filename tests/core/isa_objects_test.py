#!/usr/bin/env python3
"""Checks the promises of core/cpu/one_isa.cmake about the objects that hold the kernels for one set of instructions each.
The linker can choose none of their functions for other code, and none of their code runs before it is chosen.

    isa_objects_test.py NM OBJDUMP OBJECT...
"""

import re
import subprocess
import sys

SHARED = ["_ZN8ringgrad7kernels3addE", "_ZN8ringgrad14KernelObserver8current_E"]
OURS = re.compile(r"_ZN8ringgrad|_ZZN8ringgrad|_ZGVZN8ringgrad")


def main(nm, objdump, *objects):
    def lines(*command):
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()

    wrong = []
    for path in objects:
        rows = lines(nm, "--format=sysv", "--defined-only", "--extern-only", path)
        kinds = {row[0].strip(): row[3].strip() for row in (line.split("|") for line in rows) if len(row) > 3}
        kinds.pop("Name", None)
        wrong += [f"{path}: {name} is global ({kind})" for name, kind in kinds.items()
                  if kind not in ("OBJECT", "TLS") or not OURS.match(name)]
        wrong += [f"{path}: has its own {name}" for name in SHARED if name not in kinds]
        sections = " ".join(lines(objdump, "-h", path))
        if re.search(r" \.(init_array|ctors)", sections) or " ringgrad_kernels_" not in sections:
            wrong.append(f"{path}: its initialisers are not where isa.cpp looks for them")
    sys.exit("\n".join(wrong) or None)


main(*sys.argv[1:])
