"""One name, one type: the rule `names` of architecture_test.py.

Two types of one name in one namespace, each in a source file of its own, compile and link. Each file then uses the
other's constructors and destructors (the one definition rule asks no compiler to say so)."""

import re

from source_tree import Breach, without_comments

OPENS = re.compile(r"^(?:inline )?namespace\s*([\w:]*)\s*\{\s*(\}?)")
CLOSES = re.compile(r"^\}  // namespace")
TYPE = re.compile(r"^(?:template\s*<.*>\s*)?(?:struct|class|enum class|enum|union)\s+(\w+)\b(?!\s*<|::)[^;()]*(?:\{|$)")
TEST = re.compile(r"tests/\w+/(\w+_test)[.]cpp$")
ALONE = ("bench/", "tests/library/", "tests/ported/")  # programs of one file


def types(source):
    """(line, namespace, name) of each type at the outermost level of a namespace that has a name."""
    spaces = []
    code = without_comments(source.text).split("\n")
    for number, (line, commented) in enumerate(zip(code, source.text.split("\n")), 1):
        if opened := OPENS.match(line):
            if not opened[2]:
                spaces.append(opened[1])
        elif CLOSES.match(commented) and spaces:
            spaces.pop()
        elif (found := TYPE.match(line)) and "" not in spaces:
            yield number, "::".join(spaces), found[1]


def names(tree):
    """A type that others can see has a name of its own in its namespace; what only its file uses has none around it. A test
    that is compiled in a group with others has a namespace of its own, too."""
    first, breaches, seen = {}, [], 0
    cmake = "".join(s.text for s in tree.sources if s.path == "tests/CMakeLists.txt")
    apart = re.findall(r"\w+", "".join(re.findall(r"set\(apart ([^)]*)", cmake)))
    for source in tree.cpp:
        if source.path.startswith(ALONE):
            continue
        if (test := TEST.match(source.path)) and test[1] not in apart:
            seen += 1
            if (space := f"namespace ringgrad::test::{test[1]} {{\n") not in source.text:
                breaches.append(Breach(source.path, 1, "shares a namespace with the tests of its group", space.strip()))
        for line, space, name in types(source):
            seen += 1
            where = first.setdefault((space, name), (source.path, line))
            if where[0] != source.path:
                breaches.append(Breach(source.path, line, f"{space}::{name} is also a type in {where[0]}:{where[1]}",
                                       "another name, or `namespace {` around what its file alone uses"))
    return seen, breaches
