#!/usr/bin/env python3
"""Counts the lines and branches of the book and the library that tests reach: coverage.py BUILD [--minutes M] [--list FILE…]

Compiles the library once more, with counters, into BUILD/coverage; links the test programs and ringgrad with it; runs the
ctests with the labels quick and full but not long, those that have been quickest first, for M minutes (60); and writes the
table in tests/README.md. Another run goes on behind the tests that have run; remove BUILD/coverage to begin anew.

A line counts where some test runs it. A branch is one of the two ways of a condition in the sources (of an if, a loop, ?:,
&&, ||, a CHECK), or one way of a switch, and counts where some test takes it. The compiler has as many again that are no
decisions of ours: a call returns or throws, a destructor's turn has come or not, a static is made or not. gcov reports a
call's two ways one after the other; of the others of a statement the first count, as many as it has conditions. Left out
are ASSERTs, which only a mistake in the library itself would fail, and the kernels of core/cpu, whose inner loops would take
hours with counters: kernels/op_test compares each with its definition. What a rank that is killed has run is not counted. --list: no table, but the lines of these files that no
test runs, and the conditions that have only gone one way, as the last run found them. Needs a build in which all tests have been made."""

import argparse
import concurrent.futures
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

sys.dont_write_bytecode = True
from architecture_sizes import book_files
from relink import ROOT, Build
from source_tree import Tree, code_of

PLACE = re.compile(r"<!-- coverage -->\n.*?<!-- end -->", re.S)
CONDITION = re.compile(r"\b(?:if(?! constexpr)|for|while|CHECK|CHECK_AS)\b|(?<=\s)(?:&&|\|\|)(?=\s)|\?")
OPTIONS = ["-O0", "--coverage", "-fprofile-update=atomic", "-fno-inline", "-U_FORTIFY_SOURCE"]


def instrumented(build, out):
    """Compiles the library with counters: {object: path}."""
    objects = [built for built in build.objects("libringgrad.a") if "kernels_" not in built]
    replaced = {o: out / "objects" / o for o in objects}

    def compile_one(built):
        if not replaced[built].exists():
            done = build.compile(built, replaced[built], OPTIONS)
            if done.returncode:
                sys.exit(f"coverage.py: {built}:\n{done.stdout}")

    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", os.cpu_count()))) as pool:
        list(pool.map(compile_one, objects))
    return replaced


def tests_of(build):
    """(seconds, name, command) of the ctests, the quickest first."""
    shown = json.loads(subprocess.check_output(["ctest", "--show-only=json-v1"], cwd=build.folder, text=True))
    costs = {}
    if (file := build.folder / "Testing/Temporary/CTestCostData.txt").exists():
        costs = {line.split()[0]: float(line.split()[2]) for line in file.read_text().splitlines() if line.count(" ") == 2}
    found = []
    for test in shown["tests"]:
        labels = next((p["value"] for p in test["properties"] if p["name"] == "LABELS"), [])
        if {"quick", "full"} & set(labels) and "long" not in labels and "command" in test:
            found.append((costs.get(test["name"], 10), test["name"], test["command"]))
    return sorted(found)


def run_tests(build, out, replaced, minutes):
    """Runs the tests that use a program of the library. Returns how many ran, and how many there are."""
    kept = out / "ran.json"
    ran = json.loads(kept.read_text()) if kept.exists() else []
    programs, count, end = {}, 0, time.monotonic() + 60 * minutes
    for _, name, command in tests_of(build):
        of_build = [word for word in command if word.startswith(f"{build.folder}/") and os.access(word, os.X_OK) and os.path.isfile(word)]
        if not of_build:
            continue
        count += 1
        if name in ran or time.monotonic() > end:
            continue
        for word in of_build:
            if word not in programs:
                programs[word] = str(out / os.path.relpath(word, build.folder))
                if not os.path.exists(programs[word]):
                    build.link(os.path.relpath(word, build.folder), programs[word], replaced, "--coverage")
        run = subprocess.Popen([programs.get(word, word) for word in command], cwd=build.folder / "tests", start_new_session=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            said = "" if run.wait(900) in (0, 77) else f"ends with {run.returncode}"
        except subprocess.TimeoutExpired:
            said = "takes over 15 minutes"
            os.killpg(run.pid, signal.SIGKILL)  # with all that it has started
            run.wait()
        ran.append(name)
        kept.write_text(json.dumps(ran))
        if said:
            print(f"{name} {said}", flush=True)
    return len(ran), count


def statements(path):
    """{line: (first line of its statement, conditions of the statement, whether it is a switch)}"""
    code = re.sub(r"\bASSERT\(.*?\);", lambda m: re.sub(r"[^\n]", " ", m[0])[:-1] + ";", code_of((ROOT / path).read_text()), flags=re.S)
    found, begun = {}, []
    for number, line in enumerate(code.splitlines(), 1):
        begun.append((number, line))
        if line.rstrip().endswith((";", "{", "}", ":")):
            whole = "\n".join(text for _, text in begun)
            for n, _ in begun:
                found[n] = (begun[0][0], len(CONDITION.findall(whole)), "switch (" in whole)
            begun = []
    return found


def decisions(branches, conditions, switch):
    """The branches of a statement's own conditions, among those that gcov lists for one function."""
    own, i = [], 0
    while i < len(branches):
        pair = branches[i : i + 2]
        if pair[0]["throw"]:
            i += 1
        elif len(pair) == 2 and pair[1]["throw"]:  # a call
            i += 2
        elif switch and not any(branch["fallthrough"] for branch in pair):
            own.append(branches[i])
            i += 1
        else:
            if conditions > 0:
                own += pair
            conditions -= 1
            i += 2
    return own


def counted(replaced):
    """{path: ({line: ran}, {(line, number): taken})}"""
    lines, branches, statements_of = defaultdict(dict), defaultdict(dict), {}
    for place in replaced.values():
        notes = place.with_suffix(".gcno")
        if not place.with_suffix(".gcda").exists():
            continue
        said = subprocess.run(["gcov", "--json-format", "--branch-probabilities", "--stdout", str(notes)], cwd=place.parent,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        said = gzip.decompress(said) if said[:2] == b"\x1f\x8b" else said
        for document in said.splitlines():
            for file in json.loads(document)["files"]:
                path = os.path.relpath(os.path.realpath(file["file"]), ROOT)
                if path.startswith(".."):
                    continue
                if path not in statements_of:
                    statements_of[path] = statements(path)
                listed = defaultdict(list)
                for line in file["lines"]:
                    number = line["line_number"]
                    lines[path][number] = lines[path].get(number, False) or line["count"] > 0
                    statement = statements_of[path].get(number, (number, 0, False))
                    listed[line.get("function_name"), statement] += line["branches"]
                for (_, statement), some in listed.items():
                    for i, branch in enumerate(decisions(some, *statement[1:])):
                        key = statement[0], i
                        branches[path][key] = branches[path].get(key, False) or branch["count"] > 0
    return {path: (lines[path], branches[path]) for path in lines}


def share(parts):
    ran = [value for part in parts for value in part.values()]
    return f"{100 * sum(ran) / len(ran):.1f} %" if ran else "–"


def table(found, ran, count):
    tree = Tree(ROOT)
    of_book = {source.path for part in book_files(tree) for source in part}
    folders = defaultdict(list)
    for path in sorted(found):
        if path.split("/")[0] in {"core", "autograd", "nn", "data", "distributed", "models"}:
            folders[os.path.dirname(path)].append(path)
    own = [path for paths in folders.values() for path in paths]

    def row(name, paths):
        return f"| {name} | {share(found[p][0] for p in paths)} | {share(found[p][1] for p in paths)} |"

    return "\n".join([
        "<!-- coverage -->", "| | lines | branches |", "| :--- | ---: | ---: |",
        row("**the book** (goal: 95 %, 85 %)", [path for path in own if path in of_book]),
        row("**the library around it** (the same)", [path for path in own if path not in of_book]),
        *[row(f"`{folder}/`", paths) for folder, paths in sorted(folders.items())], "",
        f"By `tests/coverage.py`, of {ran} of the {count} ctests with the labels quick and full.", "<!-- end -->"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.replace("%", "%%"), formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--list", nargs="+", metavar="FILE")
    options = parser.parse_args()
    build = Build(options.build)
    out = build.folder / "coverage"
    kept = out / "counted.json"
    if options.list:
        found = json.loads(kept.read_text())
        for path in options.list:
            text = (ROOT / path).read_text().splitlines()
            for number in [int(number) for number, ran in found[path][0].items() if not ran]:
                print(f"{path}:{number}: {text[number - 1].strip()}")
            for key in [key for key, taken in found[path][1].items() if not taken]:
                number = int(key.split(".")[0])
                if found[path][0].get(str(number), True):
                    print(f"{path}:{number}: way {key.split('.')[1]} not taken: {text[number - 1].strip()}")
        return
    replaced = instrumented(build, out)
    ran, count = run_tests(build, out, replaced, options.minutes)
    found = counted(replaced)
    kept.write_text(json.dumps({path: [lines, {f"{k[0]}.{k[1]}": v for k, v in taken.items()}] for path, (lines, taken) in found.items()}))
    page = ROOT / "tests/README.md"
    page.write_text(PLACE.sub(lambda _: table(found, ran, count), page.read_text()))
    print(table(found, ran, count))


if __name__ == "__main__":
    main()
