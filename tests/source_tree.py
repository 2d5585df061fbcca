"""The code files of a source tree, as the architecture rules see them: paths, text, #include lines; and what a rule
reports."""

import fnmatch
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

CODE_SUFFIXES = {".h", ".cuh", ".cpp", ".cu", ".py", ".sh", ".cmake"}
CPP_SUFFIXES = {".h", ".cuh", ".cpp", ".cu"}
HEADER_SUFFIXES = {".h", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"(ringgrad/)?([^"]+)"|<(ringgrad/)?([^>]+)>)')
INCLUDE_FORMS = OURS, QUOTED, ANGLED = '"ringgrad/…"', '"…"', "<…>"  # the path is what stands for the dots


@dataclass
class Breach:
    path: str
    line: int
    what: str
    fix: str


@dataclass
class Source:
    path: str  # from the root, with forward slashes
    text: str
    includes: list = field(default_factory=list)  # (line number, path, in which form: see INCLUDE_FORMS)

    @property
    def folder(self):
        return self.path.split("/")[0] if "/" in self.path else ""

    @property
    def suffix(self):
        return os.path.splitext(self.path)[1]

    @property
    def is_header(self):
        return self.suffix in HEADER_SUFFIXES


class Tree:
    """The code files of a source tree, without what .gitignore names."""

    def __init__(self, root):
        self.root = Path(root)
        self.ignored = self._ignore_patterns()
        self.sources = []
        for directory, folders, names in os.walk(self.root):
            relative = os.path.relpath(directory, self.root).replace(os.sep, "/")
            prefix = "" if relative == "." else relative + "/"
            folders[:] = sorted(f for f in folders if f != ".git" and not self.is_ignored(prefix + f))
            for name in sorted(names):
                if not self.is_ignored(prefix + name) and self._is_code(prefix + name):
                    self.sources.append(self._read(prefix + name))
        self.paths = {s.path for s in self.sources}
        self.cpp = [s for s in self.sources if s.suffix in CPP_SUFFIXES]

    def top_level(self):
        return sorted(n for n in os.listdir(self.root) if not n.startswith(".") and not self.is_ignored(n))

    def is_ignored(self, path):
        return any(
            fnmatch.fnmatch(path if anchored else path.split("/")[-1], pattern) for pattern, anchored in self.ignored
        )

    def _ignore_patterns(self):
        file = self.root / ".gitignore"
        lines = file.read_text().splitlines() if file.exists() else []
        lines = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        return [(line.strip("/"), "/" in line.rstrip("/")) for line in lines + ["__pycache__"]]

    @staticmethod
    def _is_code(path):
        name = path.split("/")[-1]
        return os.path.splitext(name)[1] in CODE_SUFFIXES or name == "CMakeLists.txt" or path in ("go", ".ci/run")

    def _read(self, path):
        source = Source(path, (self.root / path).read_text(encoding="utf-8", errors="replace"))
        if source.suffix in CPP_SUFFIXES:
            for number, line in enumerate(without_comments(source.text).splitlines(), 1):
                if match := INCLUDE.match(line):
                    form = OURS if match[1] else QUOTED if match[2] else ANGLED
                    source.includes.append((number, match[2] or match[4], form))
        return source


def without_comments(text):
    """C++ text with its comments blanked; line numbers stay. Strings are skipped, so that "//" in one is no comment."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return token.sub(lambda m: re.sub(r"[^\n]", " ", m[0]) if m[0][0] == "/" else m[0], text)


STRING = re.compile(r'R"\w*\(.*?\)\w*"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|^\s*#.*?(?<!\\)$', re.S | re.M)


def code_of(text):
    """C++ text in its length, without comments, and without the words of strings and directives."""
    return STRING.sub(lambda m: re.sub(r"[^\n]", '"', m[0]), without_comments(text))


def each_line(source, pattern):
    for number, line in enumerate(without_comments(source.text).splitlines(), 1):
        if not line.lstrip().startswith("#") and (match := pattern.search(line)):
            yield number, match[0]
