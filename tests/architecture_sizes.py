"""The rules of architecture_test.py that count: how long a file, the book and the whole may be."""

import os
import re

from source_tree import Breach, without_comments

LONG_FILE = 500  # lines: a longer one says why it is one file
MAX_COLUMNS = 100  # of a line of C++ outside raw strings
MAX_TOKENS = 669_000  # of the whole without tests, bench and comments
MAX_BOOK = 9_800  # of the book
FREE_FOLDERS = {"tests", "bench"}  # consumers: they may include everything, and have no budget


def lines(tree):
    """A file is one idea. The first comment of one with over 500 lines says why, beginning "One file"."""
    breaches = []
    for source in tree.sources:
        count = len(source.text.splitlines())
        if count > LONG_FILE and "One file" not in first_comment(source.text):
            what = f"{count} lines, and the first comment does not say why this is one file"
            breaches.append(Breach(source.path, LONG_FILE + 1, what, 'split it, or say "One file, because …"'))
    return len(tree.sources), breaches


def first_comment(text):
    """The lines before the first that is neither comment nor blank; of Python the docstring."""
    lines = re.split(r"^(?!\s*(?://|#|$))", text, maxsplit=1, flags=re.M)
    return re.match(r'(?:#!.*\n)?\s*"""(.*?)"""', text, re.S)[1] if '"""' in text[:100] else lines[0]


RAW_STRING = re.compile(r'R"(\w*)\(.*?\)\1"', re.S)


def columns(tree):
    """No line of C++ is longer than two of them beside each other allow, but for raw strings."""
    breaches = []
    for source in tree.cpp:
        text = RAW_STRING.sub(lambda m: re.sub(r"[^\n]", "", m[0]), source.text)
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > MAX_COLUMNS:
                what = f"{len(line)} columns, at most {MAX_COLUMNS}"
                breaches.append(Breach(source.path, number, what, "break the line"))
    return len(tree.cpp), breaches


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
