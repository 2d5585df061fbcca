#!/usr/bin/env python3
"""The rule `words` of architecture_test.py: comments are plain sentences, in the words of CONTRIBUTING.md's glossary.

architecture_words.py [ROOT]    lists every comment that the rule counts
"""

import ast
import inspect
import re
import sys
from pathlib import Path

from source_tree import CPP_SUFFIXES, Breach, Tree, without_comments

# Percent of all comment blocks that begin with a relative word, and sentences of more words: both may only fall.
MAX_RELATIVE = 0.1
MAX_LONG_SENTENCES = 66
LONG = 30  # words

RELATIVE = re.compile(r"(What|Whether|Where|How|Of|Who|Whose|Whom|Which|When|Why)\b")
SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+")
PREFORMATTED = re.compile(r" {2,}|\t")  # how a line of code, of a table or of a list begins


def comments(source):
    """(line, lines of text, whether it has these lines for itself) of each comment, and of each docstring."""
    mark = "//" if source.suffix in CPP_SUFFIXES else "#"
    code = without_comments(source.text) if mark == "//" else source.text
    block, begin = [], 0
    for number, (line, left) in enumerate(zip(source.text.split("\n"), code.split("\n")), 1):
        alone = line.strip().startswith(mark) and not line.startswith("#!")
        if alone:
            begin = begin if block else number
            block.append(line.strip().removeprefix(mark).removeprefix(" "))
        elif block:
            yield begin, block, True
            block = []
        if not alone and len(left.rstrip()) < len(line.rstrip()):
            yield number, [line[len(left.rstrip()) :].strip().removeprefix(mark).strip()], False
    if block:
        yield begin, block, True
    if source.suffix == ".py":
        for node in ast.walk(ast.parse(source.text)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
                yield node.body[0].lineno, inspect.cleandoc(ast.get_docstring(node)).split("\n"), True


def sentences(lines):
    """The sentences of a comment. Lines of code and of tables in it are none."""
    paragraph = []
    for line in [*lines, ""]:
        if line.strip() and not PREFORMATTED.match(line):
            paragraph.append(line.strip())
        elif paragraph:
            yield from SENTENCE_ENDS.split(" ".join(paragraph))
            paragraph = []


def replaced_words(root):
    """Words that the glossary replaces: {word: term}. They are in its last column, as `code`."""
    page = root / "CONTRIBUTING.md"
    glossary = re.search(r"^## Glossary\n(.*?)(?=^## |\Z)", page.read_text() if page.exists() else "", re.M | re.S)
    rows = [line.strip("| ").split(" | ") for line in (glossary[1] if glossary else "").splitlines()]
    return {word: row[0] for row in rows if len(row) == 4 for word in re.findall(r"`(\w+)`", row[3])}


def findings(tree):
    """Returns the number of comment blocks; (path, line, sentence) of those that begin with a relative word, and of long
    sentences; and the breaches of the glossary."""
    replaced = replaced_words(tree.root)
    refused = re.compile(rf"\b({'|'.join(replaced) or '(?!)'})(?:s|ed|ing)?\b", re.I)
    count, relative, long, breaches = 0, [], [], []
    for source in tree.sources:
        for line, lines, alone in comments(source):
            said = list(sentences(lines))
            count += alone
            if alone and said and RELATIVE.match(lines[0]):
                relative.append((source.path, line, said[0]))
            long += [(source.path, line, sentence) for sentence in said if len(sentence.split()) > LONG]
            if found := refused.search(" ".join(lines)):
                word = found[1].lower()
                breaches.append(Breach(source.path, line, f'"{word}" in a comment', f"the glossary says {replaced[word]}"))
    return count, relative, long, breaches


def words(tree):
    """Comments begin with a subject, their sentences are short, and they use the glossary's words."""
    count, relative, long, breaches = findings(tree)
    share = 100 * len(relative) / max(1, count)
    here = "tests/architecture_words.py"
    if share > MAX_RELATIVE:
        what = f"{len(relative)} of {count} comments begin with What, Where, Of …: {share:.1f} %, at most {MAX_RELATIVE}"
        breaches.append(Breach(here, 1, what, f"write sentences with a subject; {here} lists them"))
    if len(long) > MAX_LONG_SENTENCES:
        what = f"{len(long)} sentences in comments have over {LONG} words, at most {MAX_LONG_SENTENCES}"
        breaches.append(Breach(here, 1, what, f"split them; {here} lists them"))
    return count, breaches


def main(arguments):
    count, relative, long, _ = findings(Tree(Path(arguments[0] if arguments else Path(__file__).resolve().parent.parent)))
    for path, line, sentence in relative + long:
        print(f"{path}:{line}: {sentence}")
    print(f"{len(relative)} of {count} comments begin with a relative word; {len(long)} sentences have over {LONG} words")


if __name__ == "__main__":
    main(sys.argv[1:])
