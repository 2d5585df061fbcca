"""Measured tables: one JSON document in bench/results/ per table, with the machine, the versions and the commit that it
was measured on. bench/update_readme.py writes them into README.md.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "bench" / "results"
RINGGRAD = ROOT / "build" / "release" / "ringgrad"

sys.path.insert(0, str(ROOT / "bench" / "peers"))
import report


def commit():
    """The commit that is checked out, with a + if the tree differs from it. RINGGRAD_COMMIT gives it if bench/ is there
    without its history."""
    if given := os.environ.get("RINGGRAD_COMMIT"):
        return given
    git = ["git", "-C", str(ROOT)]
    name = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    changed = subprocess.run([*git, "status", "--porcelain", "--untracked-files=no", "--", ":!bench/results", ":!README.md"],
                             capture_output=True, text=True, check=True).stdout
    return name.strip() + ("+" if changed.strip() else "")


def ringgrad(*arguments):
    """The JSON document that `ringgrad … --json` prints. Its other output goes to our stderr."""
    command = [str(RINGGRAD), *map(str, arguments), "--json"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def parts(name):
    return ROOT / "build" / "results" / f"{name}-{commit()}"


def once(name, key, measure):
    """measure()'s result, a JSON value. It is kept until save(name). So a long script that was stopped continues where it
    was when it is started again at the same commit."""
    kept = parts(name) / f"{key}.json"
    if kept.exists():
        print(f"{name}: {key} is there already, in {kept}", file=sys.stderr)
        return json.loads(kept.read_text())
    value = measure()
    kept.parent.mkdir(parents=True, exist_ok=True)
    part = kept.with_suffix(".part")
    part.write_text(json.dumps(value) + "\n")
    part.rename(kept)
    return value


def save(name, title, columns, rows, versions=None, note="", details=None, machine=None):
    """columns: the names; rows: a list of lists of strings, the first of which is the row's name; details: other
    measurements; machine: unless this one. Writes the file whole or not at all."""
    document = {
        "title": title,
        "machine": machine or report.machine(),
        "commit": commit(),
        "versions": versions or {},
        "columns": columns,
        "rows": rows,
        "note": note,
        "details": details,
    }
    FOLDER.mkdir(exist_ok=True)
    part = FOLDER / f"{name}.json.part"
    part.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    part.rename(FOLDER / f"{name}.json")
    shutil.rmtree(parts(name), ignore_errors=True)
    print(f"bench/results/{name}.json", file=sys.stderr)
