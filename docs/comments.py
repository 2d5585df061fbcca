#!/usr/bin/env python3
"""Makes Doxygen's comments of a header's: comments.py HEADER writes the header as Doxygen is to read it.

A comment is about what follows it, up to the next blank line or comment, also where that is several declarations. The
first comment of a file is about the file, and about the first class that has none of its own. A line of dashes is a
heading, and about nothing. Comments are plain text: what Doxygen would take for a command or an element is spelt out,
and lines that are indented are code. Of a page, links that lead out of docs/ become plain text.
"""

import re
import sys

COMMENT = re.compile(r"^(\s*)//(.*)$")
BEHIND = re.compile(r'^((?:[^"/]|"(?:\\.|[^"\\])*"|/(?!/))*\S) +// ?(.*)$')
COMPOUND = re.compile(r"\s*(template\b|class\b|struct\b|union\b|enum\b|namespace\b|#|})")
CLASS = re.compile(r"(class|struct) \w+[^;]*$")


def plain(text):
    return re.sub(r'([\\@<>#&%"*`|$])', r"\\\1", text).replace("---", "—").replace("::", "\\::")


def block(lines, indent, title="///"):
    """The comment's lines as Doxygen's."""
    yield indent + title
    code = False
    for line in lines:
        text = line.removeprefix(" ")
        indented = text.startswith("  ")
        if indented != code:
            yield indent + ("/// @code{.unparsed}" if indented else "/// @endcode")
            code = indented
        yield indent + "/// " + (text if code else plain(text))
    if code:
        yield indent + "/// @endcode"


def with_short(line):
    """A declaration, whose comment may stand behind it."""
    behind = BEHIND.match(line)
    is_short = behind and behind[2] and not line.lstrip().startswith("#")
    return f"{behind[1]}  ///< {plain(behind[2])}" if is_short else line


def documented(text):
    lines = text.splitlines()
    of_file, at = None, 0
    while at < len(lines):
        line = lines[at]
        if not COMMENT.match(line):
            if of_file and CLASS.match(line) and not lines[at - 1].strip():
                yield from block(of_file, "")
                of_file = None
            yield with_short(line)
            at += 1
            continue
        indent, comment = COMMENT.match(line)[1], []
        while at < len(lines) and COMMENT.match(lines[at]):
            comment.append(COMMENT.match(lines[at])[2])
            at += 1
        if comment[0].startswith(" ----"):
            comment = comment[1:]
        if not comment:
            continue
        if of_file is None and at == len(comment):
            of_file = comment
            yield from block(comment, indent, "/// @file")
            continue
        end = at
        while end < len(lines) and lines[end].strip() and not COMMENT.match(lines[end]) and not COMPOUND.match(lines[end]):
            end += 1
        several = sum(";" in line for line in lines[at:end]) > 1 and "{" not in "".join(lines[at:end])
        if several:
            yield indent + "/// @{"
        yield from block(comment, indent)
        if several:
            yield from map(with_short, lines[at:end])
            yield indent + "/// @}"
            at = end


def main(path):
    text = open(path).read()
    if path.endswith(".md"):
        return re.sub(r"\[([^]]*)\]\(\.\./[^)]*\)", r"\1", text)
    return "\n".join(documented(text))


if __name__ == "__main__":
    print(main(sys.argv[1]))
