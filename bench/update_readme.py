#!/usr/bin/env python3
"""Writes results and sources into README.md, bench/README.md, cuda_kernels/README.md and docs/, each between its two markers:

    <!-- results:NAME --> … <!-- end -->   the table of bench/results/NAME.json
    <!-- file:PATH --> … <!-- end -->      a source file, from after its includes on
    <!-- headline --> … <!-- end -->       the one table of README.md, from results of one kind of machine
    <!-- go --> … <!-- end -->             the end of ./go's output: bench/results/go.txt

A place without a result names the script that writes it. bench/on_gpu.sh writes those named gpu_…, and kernels.py those
named kernel_….

    update_readme.py            write them
    update_readme.py --check    write nothing; exit 1 if a page is not current
    update_readme.py --go       run ./go first, and keep its output; on an idle machine
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "bench" / "README.md", ROOT / "cuda_kernels" / "README.md", *sorted((ROOT / "docs").glob("from_*.md"))]
PLACE = re.compile(r"<!-- results:(\w+) -->\n.*?<!-- end -->", re.DOTALL)
FILE = re.compile(r"<!-- file:(\S+) -->\n.*?<!-- end -->", re.DOTALL)
GO = re.compile(r"<!-- go -->\n.*?<!-- end -->", re.DOTALL)
GO_TEXT = ROOT / "bench" / "results" / "go.txt"
HEADLINE = re.compile(r"<!-- headline -->\n.*?<!-- end -->", re.DOTALL)


def load(name):
    return json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text())


def source(*results):
    """Machine, versions and commits of a table."""
    versions = {f"{what} {version}": None for r in results for what, version in r["versions"].items()}
    commits = {f"commit {r['commit']}": None for r in results}
    return "<sub>" + " · ".join([results[0]["machine"], *versions, *commits]) + "</sub>"


def table(columns, rows):
    lines = [columns, [":---"] + ["---:"] * (len(columns) - 1), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def rendered(name):
    if not (ROOT / "bench" / "results" / f"{name}.json").exists():
        script = {"gpu": "on_gpu.sh", "kernel": "kernels.py", "speedrun": "speedrun.py"}.get(name.split("_")[0], f"{name}.py")
        return f"<!-- results:{name} -->\nNot measured yet: `bench/{script}`.\n<!-- end -->"
    result = load(name)
    return "\n".join([
        f"<!-- results:{name} -->",
        f"**{result['title']}**",
        "",
        *table(result["columns"], result["rows"]),
        "",
        " ".join(filter(None, [result["note"], source(result)])),
        "<!-- end -->",
    ])


def headline():
    """Speed against PyTorch, and how much of it DataParallel and DistributedDataParallel keep, on one kind of processor."""
    speed, parallel = load("train_cpu"), load("ddp")
    processor = [result["machine"].split(", load")[0] for result in (speed, parallel)]
    if processor[0] != processor[1]:
        sys.exit(f"update_readme: train_cpu.json is of {processor[0]}, ddp.json of {processor[1]}: measure both on one")
    rows = []
    for name, _, data_parallel, _, ddp, peer in parallel["rows"]:
        network = name.split(",")[0]
        _, ours, theirs, faster, *_ = next(r for r in speed["rows"] if r[0].startswith(network) and r[0].endswith("fp32"))
        kept = [re.search(r"\((.*?)\)", cell)[1] for cell in (data_parallel, ddp, peer)]
        rows.append([network, ours, theirs, faster.split(" ")[0], *kept])
    columns = ["", "images/s", "PyTorch", "faster", "DataParallel keeps", "DDP keeps", "PyTorch's DDP keeps"]
    return "\n".join(["<!-- headline -->", *table(columns, rows), "", source(speed, parallel), "<!-- end -->"])


def keep_go():
    """Saves the output of ./go without the lines of the epochs."""
    with tempfile.TemporaryDirectory() as place:
        environment = {**os.environ, "RINGGRAD_CALLED_AS": "./go"}
        program = ROOT / "build" / "release" / "ringgrad"
        done = subprocess.run([program, "train"], cwd=place, env=environment, text=True, check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lines = [line for line in done.stdout.splitlines() if not re.match(r"epoch=| *\d+ +\d+/\d+ |note ", line)]
    if "verdict busy-processor" in lines:
        sys.exit("update_readme: other programs run on this machine, and would be in the sample")
    GO_TEXT.write_text("\n".join(lines) + "\n")


def quoted(path):
    text = (ROOT / path).read_text()
    text = text[text.rindex("using namespace ringgrad;\n"):].split("\n", 2)[2]
    return f"<!-- file:{path} -->\n```{Path(path).suffix[1:]}\n{text}```\n<!-- end -->"


def updated(text):
    text = PLACE.sub(lambda place: rendered(place[1]), text)
    text = FILE.sub(lambda place: quoted(place[1]), text)
    text = GO.sub(lambda place: f"<!-- go -->\n```\n{GO_TEXT.read_text()}```\n<!-- end -->", text)
    return HEADLINE.sub(lambda place: headline(), text)


def main():
    if "--go" in sys.argv[1:]:
        keep_go()
    pages = {page: page.read_text() for page in PAGES}
    shown = {name for text in pages.values() for name in PLACE.findall(text)}
    for file in sorted((ROOT / "bench" / "results").glob("*.json")):
        if file.stem not in shown:
            sys.exit(f"update_readme: no page has a place for {file.name}, expected <!-- results:{file.stem} -->")
    for page, text in pages.items():
        if "--check" not in sys.argv[1:]:
            page.write_text(updated(text))
        elif updated(text) != text:
            sys.exit(f"update_readme: {page.relative_to(ROOT)} differs from its sources; run bench/update_readme.py")


if __name__ == "__main__":
    main()
