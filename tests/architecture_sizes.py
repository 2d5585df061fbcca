"""The rules of architecture_test.py that count: how long a file, the book and the whole may be."""

import os
import re
import shutil
import subprocess

from source_tree import Breach, without_comments

LONG_FILE = 500  # lines: a longer one says why it is one file
MAX_COLUMNS = 100  # of a line of C++ outside raw strings
# Tokens of each tier without tests, bench and comments; MAX_BOOK is that of the book.
MAX_TOKENS = {"library": 497_363, "program": 209_926, "emulator": 51_080}
MAX_BOOK = 127_172  # tokens of the book: it, and the number below, may only fall
MAX_MIXED_ROOMS = 10  # that are the book's in part
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
    return re.match(r'(?:#![^\n]*\n)?\s*"""(.*?)"""', text, re.S)[1] if '"""' in text[:100] else lines[0]


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


VALUE = r"(?: = [-\w.:]+|\{[-\w.]*\})?"
DECLARATIONS = re.compile(
    r"^ +(?:(?:const|static|constexpr|mutable) )*(?!return |using |delete |throw |case |else |new )"
    r"[A-Za-z_][\w:]*(?:<[\w:<>*, ]*>)?[*&]? [*&]?\w+" + VALUE + r"(?:, [*&]?\w+" + VALUE + ")+;$", re.M)
STATEMENTS = re.compile(r"^ +[\w.\[\]>-]+ [-+*/|]?= [\w.\[\]>-]+, [\w.\[\]>-]+ [-+*/|]?= [^,;\n]+;$", re.M)


def one_a_line(tree):
    """A line declares one name, and a statement does not go on behind a comma."""
    breaches = []
    for source in tree.cpp:
        text = RAW_STRING.sub(lambda m: re.sub(r"[^\n]", "", m[0]), source.text)
        for found in [*DECLARATIONS.finditer(text), *STATEMENTS.finditer(text)]:
            line = text.count("\n", 0, found.start()) + 1
            breaches.append(Breach(source.path, line, f"several in a line: {found[0].strip()}", "one a line"))
    return len(tree.cpp), breaches


def formatting(tree):
    """Every file of C++ is as clang-format writes it, where clang-format is installed."""
    if not shutil.which("clang-format") or not (tree.root / ".clang-format").exists():
        return 0, []
    paths = [source.path for source in tree.cpp]
    command = ["clang-format", "--dry-run", "--Werror"]
    parts = [command + paths[first :: os.cpu_count()] for first in range(os.cpu_count())]
    options = {"cwd": tree.root, "stderr": subprocess.PIPE, "text": True}
    output = "".join(run.communicate()[1] for run in [subprocess.Popen(part, **options) for part in parts])
    found = dict(re.findall(r"^(?:\./)?(\S+?):(\d+):\d+: error", output, re.M)[::-1])
    return len(paths), [
        Breach(path, int(line), "clang-format writes this otherwise", f"clang-format -i {path}")
        for path, line in sorted(found.items())
    ]


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
    """Each tier stays within its budget. Tokens are counted, so comments, air and line breaks are free."""
    breaches = []
    for name, sources in tiers(tree).items():
        count = tokens_of(sources)
        if count > MAX_TOKENS.get(name, count):
            what = f"{name}: {count} tokens, at most {MAX_TOKENS[name]}"
            breaches.append(Breach("tests/architecture_sizes.py", 1, what, "what can go? else raise MAX_TOKENS"))
    return len(MAX_TOKENS), breaches


def tiers(tree):
    """The files of the book, of the library around it, of the program, and of the emulator of a GPU."""
    of_book = {source.path for part in book_files(tree) for source in part}
    found = {"book": [], "library": [], "program": [], "emulator": []}
    for source in own(tree):
        tier = "book" if source.path in of_book else "program" if source.folder == "program" else "library"
        found["emulator" if source.path.startswith("cuda_kernels/emulator/") else tier].append(source)
    return found


def own(tree):
    return [s for s in tree.cpp if s.folder not in FREE_FOLDERS]


def book(tree):
    """The book is a target that links alone. Beside its sources it is the headers that they include, and these declare
    only what it has. README.md lists its rooms. The numbers below may only fall."""
    sources, headers = book_files(tree)
    listed = book_list(tree)
    breaches = [
        Breach("CMakeLists.txt", 1, f"{path} is of the book, and is no file", "name it as it is")
        for path in listed
        if path not in tree.paths
    ]
    breaches += [
        Breach(source.path, line, f"{path} is not of the book: its source is not in ringgrad_book", "cut the edge")
        for source in sources + headers
        for line, path, _ in source.includes
        if other_half(path) in tree.paths and other_half(path) not in listed
    ]
    rooms = mixed_rooms(tree)
    counts = [
        (tokens_of(sources + headers), MAX_BOOK, "tokens"),
        (len(rooms), MAX_MIXED_ROOMS, "rooms that are its own in part: " + ", ".join(rooms)),
    ]
    for count, most, what in counts:
        if count > most:
            breaches.append(Breach("CMakeLists.txt", 1, f"the book has {count} {what}, at most {most}", "cut an edge"))
    readme = tree.root / "README.md"
    if listed and readme.exists() and not breaches and rooms_of_book(tree) not in readme.read_text():
        breaches.append(Breach("README.md", 1, "the list of the book is not that of CMakeLists.txt", WRITE_BOOK))
    return len(listed) + len(headers), breaches


WRITE_BOOK = "run tests/architecture_test.py --write-book"
BOOK_MARKS = "<!-- book -->\n", "<!-- end -->"


def other_half(header):
    return os.path.splitext(header)[0] + ".cpp"


def book_list(tree):
    """The sources that CMakeLists.txt names: ringgrad_book(FOLDER NAME…)."""
    cmake = tree.root / "CMakeLists.txt"
    calls = re.findall(r"^ringgrad_book\(([^)]*)\)", cmake.read_text() if cmake.exists() else "", re.M)
    return [f"{words[0]}/{name}.cpp" for words in map(str.split, calls) for name in words[1:]]


def book_files(tree):
    """Its sources, and the headers that these include, and so on."""
    by_path = {s.path: s for s in tree.cpp}
    sources = [by_path[path] for path in book_list(tree) if path in by_path]
    found, left = {}, list(sources)
    while left:
        for _, path, _ in left.pop().includes:
            if path in by_path and path not in found:
                found[path] = by_path[path]
                left.append(by_path[path])
    return sources, [found[path] for path in sorted(found)]


def mixed_rooms(tree):
    """Folders some of whose sources are of the book, and some not."""
    listed = set(book_list(tree))
    mixed = []
    for folder in sorted({os.path.dirname(path) for path in listed}):
        sources = {s.path for s in tree.cpp if os.path.dirname(s.path) == folder and s.suffix == ".cpp"}
        if sources - listed:
            mixed.append(folder)
    return mixed


def rooms_of_book(tree):
    """The list of the book in README.md: a line for each room, with its files."""
    rooms = {}
    for path in book_list(tree):
        rooms.setdefault(os.path.dirname(path), []).append(os.path.splitext(os.path.basename(path))[0])
    lines = [f"| [{room}/]({room}/) | {' '.join(names)} |\n" for room, names in rooms.items()]
    return BOOK_MARKS[0] + "| room | files |\n|---|---|\n" + "".join(lines) + BOOK_MARKS[1]


def write_book(tree):
    readme = tree.root / "README.md"
    text = readme.read_text()
    begin = text.index(BOOK_MARKS[0])
    end = text.index(BOOK_MARKS[1], begin) + len(BOOK_MARKS[1])
    readme.write_text(text[:begin] + rooms_of_book(tree) + text[end:])


def summary(tree):
    """Says in one line how long everything is."""
    sizes = sorted(len(s.text.splitlines()) for s in own(tree))
    short = sum(size <= 40 for size in sizes)
    sizes_of = ", ".join(
        f"{name} {lines_of_code(sources)} and {tokens_of(sources)}" for name, sources in tiers(tree).items()
    )
    return (
        f"{lines_of_code(own(tree))} lines of code and {tokens_of(own(tree))} tokens in {len(sizes)} files ({sizes_of}); of all "
        f"their lines the median is {sizes[len(sizes) // 2]}, the 90th percentile {sizes[len(sizes) * 9 // 10]}, and "
        f"{short} files have at most 40; {len(mixed_rooms(tree))} rooms are the book's in part"
    )
