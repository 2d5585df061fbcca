#!/usr/bin/env python3
"""Makes one small mistake at a time in the library's sources, and requires that a test notices.

    mutants.py BUILD [--seed S] [--count N] [--minutes M] [FILE ...]

A mistake is one edit of one .cpp file of core, autograd, nn, data or distributed: an operator of arithmetic or of a
comparison, the order of two arguments, a call left out, a number that is off by one. Which ones are made follows from the
seed: the kinds and the folders take turns. The file's object is compiled anew and the tests linked with it, beside the build;
then the tests run that concern the folder, those of the file itself first, until one fails. A test counts only where
it fails twice with the mistake, and passes without it. Prints a line for each and a table; exit status 1 where fewer than 92 %
of those that compile are noticed. Results are kept in BUILD/mutants, so that a run can go on. Hours: ./go test --long -R mutants.
"""

import argparse
import html
import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
from relink import ROOT, Build
from source_tree import Tree, without_comments

GOAL = 0.92
SECONDS = 300  # that the cases of a filter may take
# A mistake may kill, fill memory or fork: not beyond a namespace of its own, and some limits.
CAGE = ["prlimit", "--as=16000000000", "--fsize=4000000000", "--"]
if os.geteuid() == 0:
    CAGE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *CAGE]
# The rooms of tests that concern a folder, and programs of their own.
ROOMS = {
    "core": ["core", "kernels"],
    "autograd": ["autograd", "nn", "kernels", "golden"],
    "nn": ["nn", "golden"],
    "data": ["data"],
    "distributed": ["distributed"],
}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*="}
COMPARISON = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&"}
KINDS = [
    ("arithmetic", re.compile(r"(?<= )([-+*/%]|[-+*/]=)(?= )"), lambda m: ARITHMETIC[m[0]]),
    ("comparison", re.compile(r"(?<= )(<|>|<=|>=|==|!=|&&|\|\|)(?= )"), lambda m: COMPARISON[m[0]]),
    ("order", re.compile(r"(?<=\()([\w.>-]+), ([\w.>-]+)(?=[,)])"), lambda m: f"{m[2]}, {m[1]}"),
    ("missing call", re.compile(r"(?<=[{};)])\s+(?:\w+(?:->|\.|::))*[a-z]\w*\([^;{}]*\);(?=\n)"), lambda m: ";"),
    ("off by one", re.compile(r"(?<![\w.\"'<])[01](?![\w.\"'>])"), lambda m: {"0": "1", "1": "2"}[m[0]]),
]
NO_CALL = re.compile(r"\s*(CHECK|CHECK_AS|ASSERT|REFERENCE|REGISTER_\w+|return|throw|static_assert|delete|using)\b")
STRING = re.compile(r'R"\w*\(.*?\)\w*"|"(?:\\.|[^"\\\n])*"|^\s*#.*?(?<!\\)$', re.S | re.M)
# Mistakes that no test can notice: (file, a piece of the line, what takes the place of what): why.
EQUIVALENT = {
    ("autograd/composed/layers.cpp", "{1, options.dilation}", "1 → 2"): "no mistake: the filter is one row high",
    ("nn/recompute.cpp", "c >= parts", ">= → >"): "only a run that fills the memory left to the last byte is computed again",
    ("autograd/composed/layers.cpp", "{1, options.stride}", "1 → 2"): "no mistake: the image is one row high",
}


def sites(tree):
    """[(folder, kind, file, where, what stands there, what takes its place)]"""
    found = []
    for source in tree.cpp:
        if source.folder not in ROOMS or source.suffix != ".cpp":
            continue
        code = without_comments(source.text)
        # The text keeps its length, but not the words of strings and directives.
        code = STRING.sub(lambda m: re.sub(r"[^\n]", "\"", m[0]), code)
        for kind, pattern, edit in KINDS:
            for match in pattern.finditer(code):
                if kind == "missing call" and NO_CALL.match(match[0]):
                    continue
                replaced = edit(match)
                if replaced != match[0]:
                    old = source.text[match.start() : match.end()]
                    found.append((source.folder, kind, source.path, match.start(), old, replaced))
    return found


def sample(found, seed):
    """All of them, in an order in which folders and kinds take turns."""
    groups = {}
    for site in found:
        groups.setdefault(site[:2], []).append(site)
    chance = random.Random(seed)
    lists = [groups[key] for key in sorted(groups)]
    for group in lists:
        chance.shuffle(group)
    chance.shuffle(lists)
    while lists:
        for group in lists:
            yield group.pop()
        lists = [group for group in lists if group]


class Mutants:
    def __init__(self, folder):
        self.build = Build(folder)
        self.out = self.build.folder / "mutants"
        self.out.mkdir(exist_ok=True)

    def filters(self, folder, file):
        """(program, cases) by tags: those of the file's own test, then the quick ones of each of its rooms, then the others."""
        rooms = [[test.stem for test in sorted((ROOT / "tests" / room).glob("*_test.cpp"))] for room in ROOMS[folder]]
        own = [test for room in rooms for test in room if test.removesuffix("_test").startswith(Path(file).stem)]
        for tests, tags in [(own, ""), *((room, "[quick]") for room in rooms), *((room, "~[quick]") for room in rooms)]:
            apart = [test for test in tests if (self.build.folder / "tests" / test).is_file()]
            for program, those in [("all_tests", [test for test in tests if test not in apart]), *((test, [test]) for test in apart)]:
                if those:
                    yield f"tests/{program}", ",".join(f"[#{test}]{tags}~[cuda]" for test in those)

    def fails(self, program, cases):
        """The case that fails; None: all pass. "" : it hangs, or ends before a case."""
        try:
            run = subprocess.run([*CAGE, program, "--filenames-as-tags", "--abort", "--reporter", "xml", cases],
                                 cwd=self.build.folder / "tests", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                 errors="replace", timeout=SECONDS)
            said, failed = run.stdout, run.returncode != 0
        except subprocess.TimeoutExpired as late:
            said, failed = (late.stdout or b"").decode(errors="replace"), True
        names = re.findall(r'<TestCase name="([^"]*)"', said)
        return (html.unescape(names[-1]) if names else "") if failed else None

    def verdict(self, site):
        folder, kind, file, where, old, new = site
        text = (ROOT / file).read_text()
        mutated = self.out / Path(file).name
        mutated.write_text(text[:where] + new + text[where + len(old) :])
        built, made_of = self.build.object_of(file)
        source = mutated
        if made_of != ROOT / file:
            source = self.out / "unity.cxx"
            source.write_text(made_of.read_text().replace(f'"{ROOT / file}"', f'"{mutated}"'))
        options = [] if "kernels_" in built else ["-O1"]
        if self.build.compile(built, self.out / "mutant.o", options, source=source).returncode:
            return "does not compile"
        linked = set()
        for program, cases in self.filters(folder, file):
            mutant = self.out / program
            if program not in linked:
                self.build.link(program, mutant, {built: self.out / "mutant.o"})
                linked.add(program)
            failing = self.fails(mutant, cases)
            if failing is None:
                continue
            again = re.sub(r"([,\[\]\\*])", r"\\\1", failing) if failing else cases
            if self.fails(mutant, again) is not None and self.fails(self.build.folder / program, again) is None:
                return f"noticed: {failing or 'at the start'}"
        return "SURVIVED"


def reason(site):
    folder, kind, file, where, old, new = site
    text = (ROOT / file).read_text()
    line = text[text.rfind("\n", 0, where) + 1 : text.find("\n", where + len(old))]
    return next((why for (path, piece, edit), why in EQUIVALENT.items()
                 if path == file and piece in line and edit == f"{old.strip()} → {new}"), None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=600)
    options = parser.parse_args()
    mutants = Mutants(options.build)
    kept = mutants.out / f"seed{options.seed}.json"
    verdicts = json.loads(kept.read_text()) if kept.exists() else {}
    found = [site for site in sites(Tree(ROOT)) if not options.files or site[2] in options.files]
    table, count, end = {}, 0, time.monotonic() + 60 * options.minutes
    for site in sample(found, options.seed):
        if count >= options.count or time.monotonic() > end:
            break
        folder, kind, file, where, old, new = site
        before = (ROOT / file).read_text()[: where + len(old) - len(old.lstrip())]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        name = f"{file}:{line}:{column} {' '.join(old.split())} → {new}"
        verdict = verdicts.get(name) or reason(site) or mutants.verdict(site)
        verdict = reason(site) or verdict
        verdicts[name] = verdict
        kept.write_text(json.dumps(verdicts, indent=1, ensure_ascii=False))
        print(f"{kind:<12} {name}: {verdict}", flush=True)
        count += verdict != "does not compile"
        row = table.setdefault((folder, kind), [0, 0, 0, 0])
        row[0 if verdict.startswith("noticed") else 1 if verdict == "SURVIVED" else 2 if verdict == "does not compile" else 3] += 1
    print(f"\nseed {options.seed}, of {len(found)} mistakes\n\n{'':<26}noticed survived  does not compile  is none")
    for folder, kind in sorted(table):
        print(f"{folder:<13}{kind:<13}" + "".join(f"{n:>9}" for n in table[folder, kind]))
    noticed, survived = (sum(row[i] for row in table.values()) for i in (0, 1))
    print(f"{noticed} of {noticed + survived} are noticed: {100 * noticed / max(1, noticed + survived):.1f} %")
    sys.exit(noticed < GOAL * (noticed + survived))


if __name__ == "__main__":
    main()
