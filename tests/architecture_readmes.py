"""The rule of architecture_test.py about the pages that guide a reader: what they name is there."""

import os
import re

from source_tree import Breach

LINK = re.compile(r"\]\(([^)#\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
MEMBER = re.compile(r"\b([A-Z]\w+)::~?(\w+)")


def pages_of(tree):
    for directory, folders, names in os.walk(tree.root):
        relative = os.path.relpath(directory, tree.root).replace(os.sep, "/")
        prefix = "" if relative == "." else relative + "/"
        folders[:] = [f for f in folders if f != ".git" and not tree.is_ignored(prefix + f)]
        yield from (prefix + name for name in names if name.endswith(".md"))


def readmes(tree):
    """Files and folders that a page links to exist, and so do the members, `Class::function`, that it names."""
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
    return looked, breaches
