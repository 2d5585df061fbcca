#!/usr/bin/env python3
"""Makes small mistakes in the library's sources, one at a time, and requires that a test notices.

    mutants.py BUILD [--seed S] [--count N] [--minutes M] [--survivors] [FILE ...]

A mistake is one edit of one .cpp file of core, autograd, nn, data or distributed: an operator of arithmetic or of a
comparison, the order of two arguments, a call left out, a number that is off by one. Which ones are made follows from the
seed: the kinds and the folders take turns. All of them are compiled at once, into copies of the sources in BUILD/mutants:
`a + b` becomes `(is_mutant(17) ? (a - b) : (a + b))`, and the variable MUTANT chooses one when a program starts
(mutant_switch.h). A mistake that cannot be written so, in a constant expression, say, is left out, and the next one of the
seed takes its place. One run of all tests tells which case runs the places of which mistakes. Then each mistake is chosen in
turn, and the cases that run its place are run, the quick and special ones first, for a minute, until one fails. A case
counts only where it fails twice with the mistake, and passes without it.

Writes the table in tests/README.md, for seed 1; exit status 1 where fewer than 92 % are
noticed. Results are kept in BUILD/mutants, so that a run can go on; --survivors tries anew those that no test has noticed,
after test programs have been built with new tests. Needs a build in which all tests have been made.

One file, because it is one way from a mistake to its row in the table.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

sys.dont_write_bytecode = True
from relink import ROOT, Build
from source_tree import Tree, code_of

GOAL = 0.92
SECONDS = 60  # that a mistake's cases may take, by the time that they took without it
PLACE = re.compile(r"<!-- mutants -->\n.*?<!-- end -->", re.S)
# A mistake may kill, fill memory or fork: not beyond a namespace of its own, and some limits.
CAGE = ["prlimit", "--as=16000000000", "--fsize=4000000000", "--"]
if os.geteuid() == 0:
    CAGE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *CAGE]
FOLDERS = ["core", "autograd", "nn", "data", "distributed"]
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*="}
COMPARISON = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&"}
KINDS = {
    "arithmetic": (re.compile(r"(?<= )([-+*/%]|[-+*/]=)(?= )"), lambda m: ARITHMETIC[m[0]]),
    "comparison": (re.compile(r"(?<= )(<|>|<=|>=|==|!=|&&|\|\|)(?= )"), lambda m: COMPARISON[m[0]]),
    "order": (re.compile(r"(?<=\()([\w.>-]+), ([\w.>-]+)(?=[,)])"), lambda m: f"{m[2]}, {m[1]}"),
    "missing call": (re.compile(r"(?<=[{};)])\s+(?:\w+(?:->|\.|::))*[a-z]\w*\([^;{}]*\);(?=\n)"), lambda m: ";"),
    "off by one": (re.compile(r"(?<![\w.\"'<])[01](?![\w.\"'>])"), lambda m: {"0": "1", "1": "2"}[m[0]]),
}
NO_CALL = re.compile(r"\s*(CHECK|CHECK_AS|ASSERT|REFERENCE|REGISTER_\w+|return|throw|static_assert|delete|using)\b")
EITHER_ORDER = re.compile(r"\b(min|max)(<\w+>)?\($")
# Runs only under mpirun, with tests/distributed/mpi_test.cpp, which is a program of its own.
ELSEWHERE = ["distributed/vendor_groups/mpi_process_group.cpp"]
# Mistakes that no test can notice: (file, the piece of the line that has it, what takes the place of what): why.
EQUIVALENT = {
    ("autograd/composed/layers.cpp", "{1, options.dilation}", "1 → 2"): "no mistake: the filter is one row high",
    ("core/cpu/machine_peak.cpp", "i + j * conv::kLanes", "* → /"): "the numbers are read for the time that it takes",
    ("distributed/launcher/supervisor.cpp", "sigemptyset(&signals);", "sigemptyset(&signals); → ;"): "the stack happens to hold zeros there",
    ("data/synthetic/shapes.cpp", "(centre + reach) / kPixel", "/ → *"): "slower, the same picture: nothing is painted beyond reach",
    ("nn/optim/mixed_precision.cpp", "is_equal(first_not_finite, zero)", "first_not_finite, zero → zero, first_not_finite"): "no mistake: two numbers are equal in either order",
    ("nn/safetensors_header.cpp", "uint64_t bytes = 0", "0 → 1"): "no mistake: a product takes its place before it is read",
    ("nn/recompute.cpp", "max<int64_t>(1, (bytes - peak) / kParts)", "1 → 2"): "differs only where less than 2,000 bytes are left",
    ("nn/recompute.cpp", "c >= parts", ">= → >"): "only a run that fills the memory left to the last byte is computed again",
    ("autograd/composed/layers.cpp", "{1, options.stride}", "1 → 2"): "no mistake: the image is one row high",
    ("core/cpu/amx/convolution.cpp", "(fitting - taps) / step_ + 1, shared", "1 → 2"): "a band of one row more than the cache should hold: the same sums",
    ("core/cpu/amx/weight_gradient.cpp", "groups_ / parts_ * window_bytes() / 4", "/ → *"): "a workspace larger than needed: the same sums",
    ("core/cpu/conv/depthwise_blocked.cpp", "stream_fence();", "stream_fence(); → ;"): "the locked instruction with which a thread reports its end does the same",
    ("core/cpu/conv/gemm.cpp", "left > 12 && left <= 16", "<= → <"): "16 rows as 12 + 4 instead of 8 + 8: slower, the same sums",
    ("data/formats/tiff_picture.cpp", "raster.data(), orientation, 1", "1 → 2"): "no mistake: libtiff takes any number but 0 as yes",
    ("distributed/ddp/batch_statistics.cpp", "fill_(mean, 0)", "0 → 1"): "no mistake: a rank without samples counts 0 times",
    ("distributed/os/file_descriptor.cpp", "fd >= 0 && fd < kMost", "< → <="): "differs for file 1,048,576 only; processes have fewer",
    ("distributed/os/socket.cpp", "std::this_thread::sleep_for(kRetry);", "std::this_thread::sleep_for(kRetry); → ;"): "more attempts until the same one succeeds: only a time would tell",
    ("distributed/other_collectives/collective_calls.cpp", "op, -1, options", "1 → 2"): "no mistake: the root of an operation without one is not read",
    ("distributed/rendezvous/connect.cpp", "uint64_t machine = 0", "0 → 1"): "no mistake: a machine's number takes its place before it is read",
    ("core/cpu/augment_images.cpp", "images.is_contiguous() && index.is_contiguous() && y.dim() == 4", "&& → ||"): "an ASSERT, which no caller breaks",
    ("core/cpu/cross_entropy.cpp", "cost * x.shape()[1]", "* → /"): "how rows are divided among threads: the same sums",
    ("core/cpu/machine_peak.cpp", "kUnit * sizeof(float)", "* → /"): "the numbers are read for the time that it takes",
    ("core/cpu/reduce.cpp", "count > 0 ? loops[count - 1]", "0 → 1"): "one index at a time: slower, the same sums",
    ("distributed/transport/transport.cpp", "(ranks_here_ + cores - 1) / cores", "+ → -"): "how long waits spin before they sleep: only a time would tell",
    ("autograd/ops/further/conv_batch_norm.cpp", "size.h * size.w < 2", "< → <="): "two numbers in a channel: two nodes or one, with the same results",
    ("distributed/ddp/reducer_replays.cpp", "totals_.steps - compared_.step", "- → +"): "how soon ranks compare, within the same bounds: only a time would tell",
    ("distributed/transport/transport.cpp", "moved || done()", "|| → &&"): "what is done is seen one look later: only a time would tell",
    ("nn/safetensors.cpp", 'offset + done, " to "', "+ → -"): "which bytes a damaged disk has changed: no disk of a test is damaged",
    ("distributed/launcher/supervisor.cpp", "waitpid(rank.child.pid, nullptr, 0);", "waitpid(rank.child.pid, nullptr, 0); → ;"): "a launcher that has thrown ends, and its dead ranks go with it",
    ("core/device/allocator.cpp", "hold_over_fork(mutex_);", "hold_over_fork(mutex_); → ;"): "only a fork at the moment when another thread holds the lock would tell",
    ("distributed/shared_memory/shared_all_reduce.cpp", "at > 0 || !first_is_staged", "0 → 1"): "no mistake: a piece has more than one element",
}


@dataclass
class Site:
    kind: str
    file: str
    where: int
    old: str
    new: str
    line: int
    column: int
    text: str  # of the line
    number: int = 0

    @property
    def folder(self):
        return self.file.split("/")[0]

    @property
    def room(self):
        return os.path.dirname(self.file)

    @property
    def edit(self):
        return f"{' '.join(self.old.split())} → {self.new}"

    @property
    def name(self):
        return f"{self.file}:{self.line}:{self.column} {self.edit}"

    @property
    def identity(self):
        """A name that stays if other lines of the file change."""
        return f"{self.file}: {self.text.strip()}: {self.column}: {self.edit}"

    @property
    def reason(self):
        return next((why for (file, piece, edit), why in EQUIVALENT.items()
                     if file == self.file and edit == self.edit and self.lies_in(piece)), None)

    def lies_in(self, piece):
        return any(found.start() < self.column <= found.end() for found in re.finditer(re.escape(piece), self.text))


def sites(tree):
    found = []
    for source in tree.cpp:
        if source.folder not in FOLDERS or source.suffix != ".cpp" or source.path in ELSEWHERE:
            continue
        code = code_of(source.text)
        for kind, (pattern, edit) in KINDS.items():
            for match in pattern.finditer(code):
                if kind == "missing call" and NO_CALL.match(match[0]):
                    continue
                if kind == "order" and EITHER_ORDER.search(code, max(0, match.start() - 40), match.start()):
                    continue
                start = match.end() - len(match[0].lstrip())
                begin = source.text.rfind("\n", 0, start) + 1
                line = source.text[begin : source.text.find("\n", start)]
                if (new := edit(match)) != match[0]:
                    found.append(Site(kind, source.path, start, source.text[start : match.end()], new,
                                      source.text.count("\n", 0, start) + 1, start - begin + 1, line))
    return found


def sample(found, seed):
    """All of them, in an order in which folders and kinds take turns. A change of one file leaves the order of the others."""
    groups = {}
    for site in found:
        groups.setdefault((site.folder, site.kind), []).append(site)
    lists = [groups[key] for key in sorted(groups)]
    for group in lists:
        group.sort(key=lambda site: hashlib.sha256(f"{seed} {site.identity}".encode()).digest())
    random.Random(seed).shuffle(lists)
    while lists:
        for group in lists:
            yield group.pop()
        lists = [group for group in lists if group]


def partner(code, where):
    """The place at which the bracket at `where` closes, or opens."""
    step = 1 if code[where] in "([{" else -1
    depth = 0
    while 0 <= where < len(code):
        depth += (code[where] in "([{") - (code[where] in ")]}")
        if depth == 0:
            return where
        where += step
    raise ValueError("unbalanced")


STATEMENT = re.compile(r"(?:^|\W)(?:if|if constexpr|while|for|switch|catch)\s*$")
WORD = re.compile(r"(?:^|\W)(return|else|do|case|throw|co_return)$")


def expression_around(code, start, end, whole):
    """The range of the expression with [start, end), which has all that binds closer than `?:`; `whole`: or an assignment."""
    while start > 0:
        c = code[start - 1]
        if c in ")]":
            opened = partner(code, start - 1)
            if STATEMENT.search(code[max(0, opened - 20) : opened]):
                break
            start = opened
            continue
        if c in "([{};,?" or (c == ":" and code[start - 2] != ":") or WORD.search(code[max(0, start - 12) : start]):
            break
        if c == "=":
            if code[start - 2] not in "=!<>" and not whole:
                break
            start -= 1
        start -= 2 if c == ":" else 1
    while end < len(code):
        c, two = code[end], code[end : end + 2]
        if c in "([{":
            end = partner(code, end)
        elif c in ")]};,?" or (c == ":" and two != "::") or (c == "=" and two != "==" and not whole):
            break
        end += 2 if two in ("::", "==", "!=", "<=", ">=") else 1
    inside = code[start:end]
    return start + len(inside) - len(inside.lstrip()), end - len(inside) + len(inside.rstrip())


def place_of(text):
    """(line, column) of what follows the text"""
    return text.count("\n") + 1, len(text.encode()) - text.encode().rfind(b"\n")


def switched(text, chosen):
    """(the text with all chosen mistakes as choices, [(first place, last place, mistakes)], those that cannot be written)"""
    code, groups, refused = code_of(text), [], []
    for site in chosen:
        start, end = site.where, site.where + len(site.old)
        try:
            if site.kind in ("arithmetic", "comparison"):
                start, end = expression_around(code, start, end, site.old in ("+=", "-=", "*=", "/="))
        except (ValueError, IndexError):
            refused.append(site)
            continue
        inside = [group for group in groups if group[0] < end and start < group[1]]
        within = lambda outer, inner: outer[0] <= inner[0] and inner[1] <= outer[1]
        if len(inside) > 1 and not all(within((start, end), group) for group in inside):
            refused.append(site)
        elif all(within((start, end), group) for group in inside):
            kind = site.kind if all(within(group, (start, end)) is False for group in inside) else inside[0][2]
            members = [other for group in inside for other in group[3]] + [site]
            groups = [group for group in groups if group not in inside] + [(start, end, kind, members)]
        elif within(inside[0], (start, end)):
            inside[0][3].append(site)
        else:
            refused.append(site)
    whole, places, at = "", [], 0
    for start, end, kind, members in sorted(groups, key=lambda group: group[0]):
        old = text[start:end]
        edited = [text[start : s.where] + s.new + text[s.where + len(s.old) : end] for s in members]
        if kind == "missing call":
            tests = "".join(f"if (is_mutant({s.number})) {{ {new} }} else " for s, new in zip(members, edited))
            new = f"{{ {tests}{{ {old} }} }}"
        elif kind == "order":
            if len(members) > 1:
                refused += members[1:]
            first, second = old.split(", ")
            test = f"is_mutant({members[0].number})"
            new = f"({test} ? {second} : {first}), ({test} ? {first} : {second})"
        else:
            new = f"({''.join(f'is_mutant({s.number}) ? ({e}) : ' for s, e in zip(members, edited))}({old}))"
        whole += text[at:start]
        places.append((place_of(whole), place_of(whole + new), members))
        whole += new
        at = end
    return whole + text[at:], places, refused


def escaped(case):
    return re.sub(r"([,\[\]\\*\"])", r"\\\1", case)


class Mutants:
    def __init__(self, folder, seed, tree):
        self.build = Build(folder)
        self.out = self.build.folder / "mutants"
        self.out.mkdir(exist_ok=True)
        self.newest_header = max((ROOT / source.path).stat().st_mtime for source in tree.cpp if source.is_header)
        self.lock = threading.Lock()
        self.kept = self.out / f"seed{seed}.json"
        self.verdicts = json.loads(self.kept.read_text()) if self.kept.exists() else {}
        numbers = self.out / "numbers.json"
        self.numbers = json.loads(numbers.read_text()) if numbers.exists() else {}
        self.environment = {**os.environ, "TMPDIR": str(self.out / "tmp"), "MUTANTS_SEEN": str(self.out / "seen"),
                            "MUTANTS_LOG": str(self.out / "log")}

    def keep(self, site, verdict):
        with self.lock:
            self.verdicts[site.identity] = verdict
            self.kept.write_text(json.dumps(self.verdicts, indent=1, ensure_ascii=False))

    def compiles(self, site):
        return self.verdicts.get(site.identity) != "does not compile"

    def number(self, chosen):
        for site in chosen:
            site.number = self.numbers.setdefault(site.identity, len(self.numbers) + 1)
        (self.out / "numbers.json").write_text(json.dumps(self.numbers, indent=1, ensure_ascii=False))

    def compile(self, chosen):
        """Compiles the objects that have mistakes: {object: path}. What does not compile gets that verdict."""
        by_object = {}
        for site in chosen:
            try:
                built, made_of = self.build.object_of(site.file)
                by_object.setdefault((built, made_of), []).append(site)
            except LookupError:
                self.keep(site, "does not compile")
        with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", os.cpu_count()))) as pool:
            objects = pool.map(lambda item: (item[0][0], self.compile_one(*item[0], item[1])), by_object.items())
            return {built: path for built, path in objects if path}

    def compile_one(self, built, made_of, some):
        output = self.out / "objects" / built
        stamp = output.with_suffix(".made_of")
        while True:
            places, text_of = {}, {}
            for file in sorted({site.file for site in some}):
                text, places[file], refused = switched((ROOT / file).read_text(), [s for s in some if s.file == file])
                for site in refused:
                    self.keep(site, "does not compile")
                copy = self.out / "sources" / file
                copy.parent.mkdir(parents=True, exist_ok=True)
                text_of[copy] = text
            source = next(iter(text_of))
            if made_of.suffix == ".cxx":
                source = self.out / "sources" / built.replace("/", "_")
                source = source.with_suffix(".cxx")
                text_of[source] = made_of.read_text()
                for file in places:
                    text_of[source] = text_of[source].replace(f'"{ROOT / file}"', f'"{self.out / "sources" / file}"')
            whole = hashlib.sha256("".join(text_of.values()).encode()).hexdigest()
            if output.exists() and output.stat().st_mtime > self.newest_header and stamp.read_text() == whole:
                return output
            for path, text in text_of.items():
                path.write_text(text)
            options = ["-include", str(ROOT / "tests/mutant_switch.h"), *([] if "kernels_" in built else ["-O0"])]
            done = self.build.compile(built, output, options, source=source)
            if done.returncode == 0:
                stamp.write_text(whole)
                return output
            wrong = []
            for file, ranges in places.items():
                errors = re.findall(rf"{re.escape(str(self.out / 'sources' / file))}:(\d+):(\d+): error", done.stdout)
                errors = [(int(line), int(column)) for line, column in errors]
                for e in errors:  # within a mistake; else, beside one in its line
                    hit = [r for r in ranges if r[0] <= e < r[1]] or [r for r in ranges if r[0][0] <= e[0] <= r[1][0]]
                    wrong += [site for _, _, members in hit for site in members]
            if not wrong:
                sys.exit(f"mutants.py: {built}:\n{done.stdout}")
            for site in wrong:
                self.keep(site, "does not compile")
            some = [site for site in some if self.compiles(site)]
            if not some:
                return None

    def link(self, replaced):
        """Links the test programs with the mistakes: {name of the file of tests: program}."""
        switch = self.out / "switch.o"
        built, _ = self.build.object_of("tests/catch_main.cpp")
        done = self.build.compile(built, switch, source=ROOT / "tests/mutant_switch.cpp")
        if done.returncode:
            sys.exit(f"mutants.py: {done.stdout}")
        self.programs = {}
        for test in sorted((ROOT / "tests").glob("*/*_test.cpp")):
            apart = (self.build.folder / "tests" / test.stem).is_file()
            program = self.out / "tests" / (test.stem if apart else "all_tests")
            if program not in self.programs.values():
                self.build.link(f"tests/{program.name}", program, replaced, str(switch))
            self.programs[test.stem] = program

    def run(self, program, cases, number, seconds):
        """(has it failed?, [(case, passed, seconds, mistakes seen)]), the last without what follows if it has not ended."""
        log = self.out / "log"
        for path in (log, self.out / "seen"):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.out / "tmp", ignore_errors=True)
        (self.out / "tmp").mkdir()
        try:
            run = subprocess.run([*CAGE, program, "--filenames-as-tags", "--abort", cases],
                                 cwd=self.build.folder / "tests", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 stdin=subprocess.DEVNULL, env={**self.environment, "MUTANT": str(number)}, timeout=seconds)
            failed = run.returncode not in (0, 77)
        except subprocess.TimeoutExpired:
            failed = True
        found = []
        for line in log.read_text().splitlines() if log.exists() else []:
            words = line.split("\t")
            if words[0] == "start":
                found.append((words[1],))
            else:
                found[-1] += (words[0] == "passed", float(words[1]), [int(n) for n in words[2].split()])
        return failed, found

    def trace(self):
        """Runs all tests without a mistake: [(file of tests, case, seconds, mistakes whose place it runs)]."""
        kept = self.out / "trace.json"
        traces = json.loads(kept.read_text()) if kept.exists() else {}
        found = []
        for test, program in self.programs.items():
            of = hashlib.sha256((next((ROOT / "tests").glob(f"*/{test}.cpp")).read_text() + str(sorted(self.numbers))).encode()).hexdigest()
            if traces.get(test, [""])[0] != of:
                left_out, cases = "", []
                while True:
                    failed, some = self.run(program, f"[#{test}]{left_out}", 0, 1200)
                    cases += [case for case in some if len(case) > 1 and case[1]]
                    if not failed or not some:
                        break
                    print(f"{test}: fails without a mistake: {some[-1][0]}", flush=True)
                    left_out += "".join(f'~"{escaped(case[0])}"' for case in some)
                traces[test] = [of, cases]
                kept.write_text(json.dumps(traces))
            found += [(test, case, seconds, seen) for case, _, seconds, seen in traces[test][1]]
        return found

    def verdict(self, site, cases):
        cases = sorted((case for case in cases if site.number in case[3]), key=lambda case: (case[2] + 0.01) * len(case[3]))
        if not cases:
            return "SURVIVED: no test runs it"
        spent, batch_seconds = 0, 4
        while cases and spent < SECONDS:
            batch, seconds = [], 0
            while cases and self.programs[cases[0][0]] == self.programs[(batch or cases)[0][0]] and (
                    not batch or seconds + cases[0][2] < batch_seconds) and len(batch) < 400:
                seconds += cases[0][2]
                batch.append(cases.pop(0))
            spent += seconds + 0.1
            batch_seconds = min(30, batch_seconds * 4)
            while batch:
                program = self.programs[batch[0][0]]
                failed, ran = self.run(program, ",".join(escaped(case[1]) for case in batch), site.number, 20 + 10 * seconds)
                if not failed:
                    break
                name = ran[-1][0] if ran else batch[0][1]
                alone = next((case[2] for case in batch if case[1] == name), 0)
                if self.run(program, escaped(name), site.number, 10 + 10 * alone)[0] and not self.run(
                        program, escaped(name), 0, 60 + 10 * alone)[0]:
                    return f"noticed: {name if ran else 'at the start'}"
                batch = [case for case in batch if case[1] != name]
        return "SURVIVED" if not cases else f"SURVIVED: {spent:.0f} s of tests"


def table(rows, survivors, seed, found, count):
    """The table of README.md. rows: {(room, kind): [noticed, survived, equivalent]}"""
    def cell(some):
        noticed, survived, equivalent = (sum(row[i] for row in some) for i in range(3))
        return f"{noticed}/{noticed + survived}" + (f" + {equivalent}" if equivalent else "") if noticed + survived + equivalent else ""

    lines = ["<!-- mutants -->", f"| | {' | '.join(KINDS)} | all |", "| :--- |" + " ---: |" * (len(KINDS) + 1)]
    rooms = sorted({room for room, _ in rows})
    for room, name in [("", "**all**"), *((room, f"`{room}/`") for room in rooms)]:
        mine = {key: row for key, row in rows.items() if key[0] == room or not room}
        lines.append(f"| {name} | " + " | ".join(cell([row for key, row in mine.items() if key[1] == kind]) for kind in KINDS) +
                     f" | {cell(mine.values())} |")
    noticed, survived, equivalent = (sum(row[i] for row in rows.values()) for i in range(3))
    lines += ["", f"By `tests/mutants.py` with seed {seed}: {noticed + survived + equivalent} tried of {count}, which were drawn from {found}. "
              f"{100 * noticed / max(1, noticed + survived):.1f} % are noticed (goal: {100 * GOAL:.0f} %). A cell has noticed/made + those that "
              "are no mistake, for the reasons that `EQUIVALENT` there gives.", ""]
    lines += ["Not noticed:", "", *[f"* `{survivor}`" for survivor in survivors]] if survivors else ["All are noticed."]
    return "\n".join([*lines, "<!-- end -->"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=600)
    parser.add_argument("--survivors", action="store_true")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    tree = Tree(ROOT)
    mutants = Mutants(options.build, options.seed, tree)
    found = [site for site in sites(tree) if not options.files or site.file in options.files]
    order = list(sample(found, options.seed))
    chosen = []
    while len(chosen) < min(options.count, len(order)):
        some = [site for site in order if mutants.compiles(site)][: options.count + options.count // 4]
        mutants.number(some)
        replaced = mutants.compile(some)
        chosen = [site for site in some if mutants.compiles(site)][: options.count]
        if len(some) < options.count:
            break
    mutants.link(replaced)
    cases = mutants.trace()
    rows, survivors, tried = {}, [], 0
    for site in chosen:
        verdict = mutants.verdicts.get(site.identity)
        if verdict is None or (options.survivors and verdict.startswith("SURVIVED")):
            if time.monotonic() > end:
                continue
            verdict = site.reason or mutants.verdict(site, cases)
            mutants.keep(site, verdict)
            print(f"{site.kind:<12} {site.name}: {verdict}", flush=True)
        verdict = site.reason or verdict
        row = rows.setdefault((site.room, site.kind), [0, 0, 0])
        row[0 if verdict.startswith("noticed") else 1 if verdict.startswith("SURVIVED") else 2] += 1
        tried += 1
        if verdict.startswith("SURVIVED"):
            survivors.append(f"{site.name}{verdict.removeprefix('SURVIVED')}")
    noticed, survived = (sum(row[i] for row in rows.values()) for i in (0, 1))
    print(f"{tried} of {len(chosen)} tried, {noticed} of {noticed + survived} are noticed: {100 * noticed / max(1, noticed + survived):.1f} %")
    print("\n".join(survivors))
    if not options.files and options.seed == 1:
        page = ROOT / "tests/README.md"
        page.write_text(PLACE.sub(lambda _: table(rows, survivors, options.seed, len(found), len(chosen)), page.read_text()))
    sys.exit(noticed < GOAL * (noticed + survived))


if __name__ == "__main__":
    main()
