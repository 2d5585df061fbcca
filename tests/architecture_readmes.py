"""The rule of architecture_test.py about the pages that guide a reader: what they name is there."""

import os
import re

from source_tree import Breach, without_comments

LINK = re.compile(r"\]\(([^)#\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"(?<![\w./<-])((?:[a-z]\w*/)*[a-z]\w{3,}\.(?:h|cuh|cpp|cu))\b")
NOT_OURS = {"torch/torch.h", "tensorflow/core/lib/io/record_writer.h", "mma.h", "nvcomp.h"}
MEMBER = re.compile(r"\b([A-Z]\w+)::~?(\w+)")


def pages_of(tree):
    for directory, folders, names in os.walk(tree.root):
        relative = os.path.relpath(directory, tree.root).replace(os.sep, "/")
        prefix = "" if relative == "." else relative + "/"
        folders[:] = [f for f in folders if f != ".git" and not tree.is_ignored(prefix + f)]
        yield from (prefix + name for name in names if name.endswith(".md"))


def readmes(tree):
    """Files and folders that a page links to exist, and so do the members, `Class::function`, that it names. So do the
    files that a page or a comment names, below whichever folder."""
    ends = {path[i:] for path in tree.paths for i in [0, *(m.end() for m in re.finditer("/", path))]}
    texts = [s.text for s in tree.cpp]
    whole = "\n".join(texts)

    def is_member(owner, name):
        type_of = re.compile(rf"\b(?:class|struct|enum class)\s+{owner}\b")
        return f"{owner}::{name}" in whole or any(type_of.search(t) and re.search(rf"\b{name}\b", t) for t in texts)

    looked, breaches = 0, []
    for page in pages_of(tree):
        folder = tree.root / os.path.dirname(page)
        for number, line in enumerate((tree.root / page).read_text().splitlines(), 1):
            for link in (l for l in LINK.findall(line) if "://" not in l):
                looked += 1
                if not (folder / link).exists():
                    breaches.append(Breach(page, number, f"links to {link}, which is not there", "follow the move"))
            for owner, name in (pair for code in CODE.findall(line) for pair in MEMBER.findall(code)):
                looked += 1
                if not is_member(owner, name):
                    breaches.append(Breach(page, number, f"names {owner}::{name}, which is not there", "follow the change"))
    commented = [(s.path, s.text, without_comments(s.text)) for s in tree.cpp if s.folder != "tests"]
    named = [
        (path, number, name)
        for path, text, code in commented
        for number, (line, left) in enumerate(zip(text.splitlines(), code.splitlines()), 1)
        for name in FILE.findall(line[len(left.rstrip()) :])
    ]
    for page in pages_of(tree):
        for number, line in enumerate((tree.root / page).read_text().splitlines(), 1):
            named += [(page, number, name) for code in CODE.findall(line) for name in FILE.findall(code)]
    for path, number, name in named:
        looked += 1
        if name.removeprefix("ringgrad/") not in ends | NOT_OURS:
            breaches.append(Breach(path, number, f"names {name}, which is not there", "follow the move"))
    return looked, breaches
