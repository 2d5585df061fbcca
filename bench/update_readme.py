#!/usr/bin/env python3
"""Writes the tables of bench/results/ and whole files into README.md, each between its two markers:

    <!-- results:NAME --> … <!-- end -->
    <!-- file:PATH --> … <!-- end -->

A place without a result says which script writes it; those named gpu_… are bench/on_gpu.sh's.

    update_readme.py            write them
    update_readme.py --check    write nothing; exit 1 where README.md says something else
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACE = re.compile(r"<!-- results:(\w+) -->\n.*?<!-- end -->", re.DOTALL)
FILE = re.compile(r"<!-- file:(\S+) -->\n.*?<!-- end -->", re.DOTALL)


def rendered(name):
    file = ROOT / "bench" / "results" / f"{name}.json"
    if not file.exists():
        script = "on_gpu.sh" if name.startswith("gpu_") else f"{name}.py"
        return f"<!-- results:{name} -->\nNot measured yet: `bench/{script}`.\n<!-- end -->"
    result = json.loads(file.read_text())
    table = [result["columns"], [":---"] + ["---:"] * (len(result["columns"]) - 1), *result["rows"]]
    versions = [f"{what} {version}" for what, version in result["versions"].items()]
    source = " · ".join([result["machine"], *versions, f"commit {result['commit']}"])
    return "\n".join([
        f"<!-- results:{name} -->",
        f"**{result['title']}**",
        "",
        *("| " + " | ".join(row) + " |" for row in table),
        "",
        " ".join(filter(None, [result["note"], f"<sub>{source}</sub>"])),
        "<!-- end -->",
    ])


def quoted(path):
    language = Path(path).suffix[1:]
    return f"<!-- file:{path} -->\n```{language}\n{(ROOT / path).read_text()}```\n<!-- end -->"


def main():
    readme = ROOT / "README.md"
    text = readme.read_text()
    updated = FILE.sub(lambda place: quoted(place[1]), PLACE.sub(lambda place: rendered(place[1]), text))
    shown = set(PLACE.findall(text))
    for file in sorted((ROOT / "bench" / "results").glob("*.json")):
        if file.stem not in shown:
            sys.exit(f"update_readme: README.md has no place for {file.name}, expected <!-- results:{file.stem} -->")
    if "--check" in sys.argv[1:]:
        sys.exit(updated != text and "update_readme: README.md differs from its sources; run bench/update_readme.py")
    readme.write_text(updated)


if __name__ == "__main__":
    main()
