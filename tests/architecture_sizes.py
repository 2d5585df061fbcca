"""The rules of architecture_test.py that count: how long a file, the book and the whole may be."""

import os
import re

from source_tree import Breach, without_comments

MAX_LINES = 500  # of a file
MAX_TOKENS = 668_500  # of the whole without tests, bench and comments
MAX_BOOK = 9_200  # of the book
FREE_FOLDERS = {"tests", "bench"}  # consumers: they may include everything, and have no budget


def lines(tree):
    """No code file over 500 lines."""
    breaches = []
    for source in tree.sources:
        count = len(source.text.splitlines())
        if count > MAX_LINES:
            breaches.append(
                Breach(source.path, MAX_LINES + 1, f"{count} lines, at most {MAX_LINES}", "it is two ideas: split it")
            )
    return len(tree.sources), breaches


def lines_of_code(sources):
    """Lines that are neither blank nor comment."""
    return sum(1 for s in sources for line in without_comments(s.text).splitlines() if line.strip())


TOKEN = re.compile(
    r'"(?:\\.|[^"\\])*"|[A-Za-z_]\w*|\d[\w.]*|::|->|[-+*/%&|^=!<>]=|&&|\|\||<<|>>|\S'
)


def tokens_of(sources):
    """Names, numbers, strings and operators outside comments."""
    return sum(len(TOKEN.findall(without_comments(s.text))) for s in sources)


def budget(tree):
    """The whole stays within its budget. Tokens are counted, so comments, air and line breaks are free."""
    count = tokens_of(own(tree))
    what = f"{count} tokens, at most {MAX_TOKENS}"
    over = Breach("tests/architecture_sizes.py", 1, what, "what can go? else raise MAX_TOKENS")
    return 1, [over] if count > MAX_TOKENS else []


def own(tree):
    return [s for s in tree.cpp if s.folder not in FREE_FOLDERS]


def book(tree):
    """The book, which README.md names address by address, is short enough to be read."""
    addresses, chapters = chapters_of(tree)
    breaches = []
    count = sum(len(s.text.splitlines()) for s in chapters)
    if count > MAX_BOOK:
        what = f"the book has {count} lines, at most {MAX_BOOK}"
        breaches.append(Breach("README.md", 1, what, "name less, or write less"))
    return len(addresses), breaches


def chapters_of(tree):
    """The links between README.md's marks, and the files there: a folder's own for "nn/", a header with its source for
    "autograd/arena.h"."""
    readme = tree.root / "README.md"
    part = re.search(r"<!-- book -->(.*?)<!-- end -->", readme.read_text() if readme.exists() else "", re.S)
    addresses = re.findall(r"\]\(([\w/.]+)\)", part[1]) if part else []
    folders = {path for path in addresses if path.endswith("/")}
    stems = {os.path.splitext(path)[0] for path in addresses}
    return addresses, [
        s for s in tree.cpp if os.path.splitext(s.path)[0] in stems or os.path.dirname(s.path) + "/" in folders
    ]


def summary(tree):
    """How long everything is, for people."""
    sizes = sorted(len(s.text.splitlines()) for s in own(tree))
    short = sum(size <= 40 for size in sizes)
    chapters = chapters_of(tree)[1]
    return (
        f"{lines_of_code(own(tree))} lines of code and {tokens_of(own(tree))} tokens in {len(sizes)} files; of all their lines the median is "
        f"{sizes[len(sizes) // 2]}, the 90th percentile {sizes[len(sizes) * 9 // 10]}, and {short} files have at most 40\n"
        f"the book: {sum(len(s.text.splitlines()) for s in chapters)} lines in {len(chapters)} files"
    )
