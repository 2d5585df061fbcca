#!/usr/bin/env python3
"""Writes the annotated book, a site of plain HTML: site.py BUILD OUT.

A chapter is a page of prose, NN_name.md in this folder, and the files of the book that it names: <!-- files: … -->, in the
order in which they are read; FOLDER/ is whatever else is there. A file's page has its comments beside its code, and
every name leads to its definition. <!-- output: COMMAND --> is what the command says when the site is written, and
<!-- digits --> some of the pictures that the book's program draws. BUILD is a build folder in which the programs
ringgrad and ringgrad_book have been made, OUT the site's. Exit status 77: a tool is missing, which is said."""

import base64
import concurrent.futures
import html
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests")]
sys.path.append("/usr/lib/python3/dist-packages")  # Debian's packages, for a Python that is not Debian's

try:
    import markdown
    from pygments.lexers import CppLexer
    from pygments.token import STANDARD_TYPES, Comment

    from names import Names
except ImportError as error:
    print(f"skipped: the book needs the Python package {error.name}: apt-get install python3-clang python3-markdown "
          "python3-pygments, or the equivalents of your system")
    sys.exit(77)

from architecture_sizes import book_files
from source_tree import Tree

FILES = re.compile(r"<!-- files: (.*?) -->", re.S)
OUTPUT = re.compile(r"<!-- output: (.*?) -->")
DIGITS = "<!-- digits -->"
KILLED = ", and rank 1 is killed"
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
WORDS = re.compile(r"`([^`]+)`|((?:[a-z]\w*/)+\w+\.(?:h|cpp))(?::(\d+))?|\b([A-Za-z]\w*(?:::\w+)+|[a-z]+(?:_[a-z0-9]+)+|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+)\b(?:\(\))?")


def stem(path):
    return os.path.splitext(path)[0]


def page_of(path):
    return stem(path).replace("/", "-") + ".html"


def side(path):
    """A page has a header and its source: ids begin with h or c."""
    return "h" if path.endswith(".h") else "c"


def anchor(place):
    return f"{side(place.path)}{place.line}"


# -- what the programs say ---------------------------------------------------------------------------------------------


class Runs:
    """The output of commands. They run while the sources are read."""

    def __init__(self, build, commands):
        self.programs = {"ringgrad": build / "ringgrad", "ringgrad_book": build / "models/book/ringgrad_book"}
        self.folder = tempfile.TemporaryDirectory(prefix="ringgrad-book-")
        self.pool = concurrent.futures.ThreadPoolExecutor(1)
        self.said = {command: self.pool.submit(self.run, command) for command in commands}

    def run(self, command):
        name, *words = command.removesuffix(KILLED).split()
        with subprocess.Popen([self.programs[name], *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              cwd=self.folder.name) as run:
            first = ""
            if command.endswith(KILLED):
                first = run.stdout.readline()
                children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
                os.kill(int(children[1]), signal.SIGKILL)
            text = first + run.communicate(timeout=300)[0]
        if run.returncode not in ({5} if command.endswith(KILLED) else {0}):
            sys.exit(f"site.py: {command} ended with {run.returncode}:\n{text}")
        return text

    def digits(self):
        """Twenty of the drawn test pictures, as one picture."""
        concurrent.futures.wait(self.said.values())
        files = Path(self.folder.name, "book_run")
        pixels = files.joinpath("t10k-images-idx3-ubyte").read_bytes()[16:]
        labels = files.joinpath("t10k-labels-idx1-ubyte").read_bytes()[8:28]
        rows = b"".join(
            b"\0" + b"".join(pixels[784 * (10 * line + i) + 28 * row :][:28] for i in range(10))
            for line in range(2) for row in range(28))

        def chunk(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

        png = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 280, 56, 8, 0, 0, 0, 0))
               + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
        alternative = f"Twenty drawn digits: {' '.join(map(str, labels))}"
        return (f'<figure><img class="pixels" alt="{alternative}" '
                f'src="data:image/png;base64,{base64.b64encode(png).decode()}"><figcaption>Drawn just now.</figcaption></figure>')


# -- the book ----------------------------------------------------------------------------------------------------------


class Chapter:
    def __init__(self, page):
        self.page = page
        self.text = page.read_text()
        self.title = re.match(r"# (.*)\n", self.text)[1]
        self.url = page.stem.split("_", 1)[0] + "-" + page.stem.split("_", 1)[1].replace("_", "-") + ".html"
        self.begin = re.split(r"(?<=\.)\s", self.text.split("\n\n")[1].replace("\n", " "))[0]  # its first sentence
        self.listed = FILES.search(self.text)[1].split()
        self.units = []

    def take(self, left, named):
        """Its files, by stem, out of `left`: those that it names, and of its folders those that no chapter names."""
        for word in self.listed:
            taken = [unit for unit in left if unit == word or (os.path.dirname(unit) + "/" == word and unit not in named)]
            if not taken and not word.endswith("/"):
                sys.exit(f"{self.page}: names {word}, which is no file of the book, or has been named before")
            self.units += taken
            left[:] = [unit for unit in left if unit not in taken]


class Site:
    def __init__(self, build, out):
        self.out = out
        tree = Tree(ROOT)
        sources, headers = book_files(tree)
        program = [source for source in tree.cpp if source.path.startswith("models/book/")]
        used = {path for source in program for _, path, _ in source.includes}  # its own guards
        self.texts = {source.path: source.text for source in sources + headers + program}
        self.texts |= {source.path: source.text for source in tree.cpp if source.path in used}
        left = list(dict.fromkeys(stem(path) for path in sorted(self.texts, key=lambda path: (os.path.dirname(path), path))))
        self.chapters = [Chapter(page) for page in sorted(Path(__file__).parent.glob("[0-9]*.md"))]
        named = {word for chapter in self.chapters for word in chapter.listed}
        for chapter in self.chapters:
            chapter.take(left, named)
        if left:
            sys.exit(f"site.py: no chapter has {' '.join(left)}; name them in a line <!-- files: … -->")
        self.runs = Runs(build, [command for chapter in self.chapters for command in OUTPUT.findall(chapter.text)])
        self.names = Names(ROOT, build, self.texts)
        self.words = set(IDENTIFIER.findall("\n".join(self.texts.values())))
        self.wrong = []

    # Text ------------------------------------------------------------------------------------------------------------

    def link(self, place, label, title=""):
        return f'<a href="{page_of(place.path)}#{anchor(place)}"{title}>{label}</a>'

    def linked_words(self, text):
        """Text of a comment or an output: names and files in it lead to what they name."""

        def replace(match):
            span, path, line, word = match.groups()
            if path:
                if path not in self.texts:
                    return html.escape(match[0])
                there = anchor_at = ""
                for name in self.names.names.values():
                    if line and name.target.path == path and name.target.line == int(line):
                        there = "#" + anchor(name.target)
                return f'<a href="{page_of(path)}{there or "#" + side(path)}">{match[0]}</a>'
            whole = html.escape(span or match[0])
            name = self.names.called(span or word)
            if name and (word or not span.islower() or "_" in span):
                whole = self.link(name.target, whole)
            return f"<code>{whole}</code>" if span else whole

        parts, end = [], 0
        for match in WORDS.finditer(text):
            parts += [html.escape(text[end : match.start()]), replace(match)]
            end = match.end()
        return "".join(parts) + html.escape(text[end:])

    def comment(self, lines):
        """A block of comment lines as paragraphs, lists, and examples, which are indented."""
        blocks = []  # [kind, lines]
        for line in lines:
            kind = "text"
            if not line.strip():
                blocks.append(["", []])
                continue
            if line.startswith("  "):
                last = blocks[-1][0] if blocks else ""
                kind = "list" if line.lstrip().startswith("* ") or last == "list" else "example"
            if kind == "list" and line.lstrip().startswith("* "):
                blocks.append([kind, [line.strip()[2:]]])
            elif blocks and blocks[-1][0] == kind:
                blocks[-1][1].append(line if kind == "example" else line.strip())
            elif kind == "example" and len(blocks) > 1 and blocks[-1][0] == "" and blocks[-2][0] == kind:
                blocks.pop()
                blocks[-1][1] += ["", line]
            else:
                blocks.append([kind, [line if kind == "example" else line.strip()]])
        made = []
        for kind, text in blocks:
            if kind == "example":
                made.append(f"<pre>{self.linked_words(chr(10).join(l[2:] for l in text))}</pre>")
            elif kind:
                tag = {"text": "p", "list": "li"}[kind]
                made.append(f"<{tag}>{self.linked_words(' '.join(text))}</{tag}>")
        return re.sub(r"((?:<li>.*?</li>\s*)+)", r"<ul>\1</ul>", "".join(made), flags=re.S)

    # Code ------------------------------------------------------------------------------------------------------------

    def highlighted(self, path):
        """The lines of a file as HTML."""
        text = self.texts[path]
        bytes_before = None if text.isascii() else [0]
        if bytes_before:
            for character in text:
                bytes_before.append(bytes_before[-1] + len(character.encode()))
        pieces = []
        anchors = set()
        for at, kind, value in CppLexer().get_tokens_unprocessed(text):
            classes = STANDARD_TYPES.get(kind, "")
            shown = html.escape(value)
            if kind is Comment.PreprocFile and value[1:-1].removeprefix("ringgrad/") in self.texts:
                target = value[1:-1].removeprefix("ringgrad/")
                shown = f'<a href="{page_of(target)}#{side(target)}">{shown}</a>'
            elif IDENTIFIER.fullmatch(value):
                offset = bytes_before[at] if bytes_before else at
                name, place = self.names.meant_at(path, offset, value)
                if name:
                    shown = self.name_in_code(name, place, shown, anchors)
            for number, part in enumerate(shown.split("\n")):
                if number:
                    pieces.append("\n")
                if part:
                    pieces.append(f'<span class="{classes}">{part}</span>' if classes else part)
        lines = "".join(pieces).split("\n")
        for place in self.names.places(path):  # those in a directive, and those that a macro names
            if anchor(place) not in anchors:
                anchors.add(anchor(place))
                lines[place.line - 1] = f'<dfn id="{anchor(place)}"></dfn>' + lines[place.line - 1]
        return lines

    def name_in_code(self, name, place, shown, anchors):
        """A use leads to the definition, a definition to its declaration, and a declaration to the definition."""
        if not place:
            return self.link(name.target, shown)
        other = next((p for p in [name.definition, *name.declarations] if p and p != place), None)
        if other:
            shown = self.link(other, shown, f' title="{"defined" if other is name.definition else "declared"} in {other.path}"')
        mark = anchor(place)
        if mark in anchors:
            return f"<dfn>{shown}</dfn>"
        anchors.add(mark)
        return f'<dfn id="{mark}">{shown}</dfn>'

    def listing(self, path):
        """A file: sections of a comment and the code to which it belongs."""
        raw = self.texts[path].splitlines()
        code = self.highlighted(path)
        rows, note, lines = [], [], []

        def close():
            nonlocal note, lines
            while lines and not lines[-1].strip():
                lines.pop()
            while lines and not lines[0].strip():
                lines.pop(0)
            if note or lines:
                shown = "\n".join(lines)
                kind = "note" if rows else "lead"  # the file's first comment stands above all of it
                note_html = f'<div class="{kind}">{self.comment(note)}</div>' if note else ""
                code_html = f"<pre>{shown}</pre>" if lines else ""
                rows.append(f'<div class="row">{note_html}{code_html}</div>')
            note, lines = [], []

        for number, line in enumerate(raw):
            if line.lstrip().startswith("//"):
                if lines or (note and not raw[number - 1].lstrip().startswith("//")):
                    close()
                note.append(re.sub(r"^\s*// ?", "", line))
            else:
                lines.append(code[number])
        close()
        return f'<h2 id="{side(path)}">{path}</h2>\n<div class="listing">{"".join(rows)}</div>'

    # Pages -----------------------------------------------------------------------------------------------------------

    def units_of(self, unit):
        return [path for path in (unit + ".h", unit + ".cpp") if path in self.texts]

    def first_words(self, unit):
        """The first sentence of a file's first comment."""
        for path in self.units_of(unit):
            if match := re.match(r"((?://.*\n)+)", self.texts[path]):
                words = " ".join(re.sub(r"^// ?", "", line) for line in match[1].splitlines())
                words = re.sub(r"^\w+(\(\))?: ", "", words)  # "GradientBuckets: …"
                words = re.split(r"(?<=[.;])\s", words + " ")[0].rstrip(".;")
                return words[:1].upper() + words[1:]
        return ""

    def write(self, url, title, body, where=None, kind="prose"):
        order = [("index.html", "Contents")]
        for chapter in self.chapters:
            order.append((chapter.url, chapter.title))
            order += [(page_of(unit), unit) for unit in chapter.units]
        order.append(("names.html", "Names"))
        at = [page for page, _ in order].index(url)
        around = ""
        if at:
            around += f'<a rel="prev" href="{order[at - 1][0]}">← {order[at - 1][1]}</a>'
        if at + 1 < len(order):
            around += f'<a rel="next" href="{order[at + 1][0]}">{order[at + 1][1]} →</a>'
        chapters = "".join(
            f'<li><a href="{c.url}"{" aria-current=page" if c.url == url else ""}>{c.title}</a>'
            + (f'<ul class="files">{"".join(self.entry(unit, url) for unit in c.units)}</ul>' if c is where else "") + "</li>"
            for c in self.chapters)
        crumb = f' › <a href="{where.url}">{where.title}</a>' if where and kind == "code" else ""
        self.out.joinpath(url).write_text(f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{title} · ringgrad</title><link rel="stylesheet" href="style.css"></head>
<body class="{kind}"><header><details><summary>Contents</summary><nav><ol>{chapters}</ol><a href="names.html">Names</a></nav>
</details><span class="crumbs"><a href="index.html">ringgrad, the book</a>{crumb}</span>
<nav class="around">{around}</nav></header>
<main>
{body}
</main>
<footer><nav class="around">{around}</nav></footer></body></html>
""")

    def entry(self, unit, url=""):
        current = " aria-current=page" if page_of(unit) == url else ""
        return f'<li><a href="{page_of(unit)}"{current}>{unit}</a></li>'

    def prose(self, chapter):
        """A chapter's page. A name in `…` that the book has not is an error."""
        files = "".join(f'<li><a href="{page_of(unit)}">{unit}</a> <span>{self.linked_words(self.first_words(unit))}</span></li>'
                        for unit in chapter.units)
        text = FILES.sub("", chapter.text)
        page = markdown.markdown(text, extensions=["tables", "fenced_code"])

        def code(match):
            words = html.unescape(match[1])
            if re.fullmatch(r"[\w/]+\.(h|cpp)", words):
                found = [path for path in self.texts if path == words or path.endswith("/" + words)]
                if len(found) == 1:
                    return f'<a href="{page_of(found[0])}#{side(words)}">{match[0]}</a>'
            if re.fullmatch(r"[A-Za-z_]\w*(::~?\w+)*(\(\))?", words):
                if not set(IDENTIFIER.findall(words)) <= self.words:
                    self.wrong.append(f"{chapter.page}: names {words}, which the book has not")
                if name := self.names.called(words):
                    return self.link(name.target, match[0])
            return match[0]

        page = re.sub(r"(?<!<pre>)<code>([^<]*)</code>", code, page)
        page = re.sub(r'href="\.\./([^"#]+\.(?:h|cpp))"', lambda m: f'href="{page_of(m[1])}"', page)
        page = re.sub(r'<p><img alt="([^"]*)" src="([^"]*)" ?/></p>', r'<figure><img alt="\1" src="\2"></figure>', page)
        page = OUTPUT.sub(lambda m: self.output(html.unescape(m[1])), page)
        page = page.replace(DIGITS, self.runs.digits() if DIGITS in page else "")
        aside = f'<aside><h2>The files</h2><ol>{files}</ol></aside>'
        self.write(chapter.url, chapter.title, f"<article>{page}</article>{aside}", chapter)

    def output(self, command):
        said = self.linked_words(self.runs.said[command].result().rstrip())
        return f'<figure class="output"><figcaption>{html.escape(command)}</figcaption><pre>{said}</pre></figure>'

    def contents(self):
        intro, *_ = Path(__file__).parent.joinpath("README.md").read_text().split("<!-- end of the introduction -->")
        chapters = "".join(f'<li><a href="{c.url}">{c.title}</a> <span>{html.escape(c.begin)}</span></li>' for c in self.chapters)
        self.write("index.html", "The book", f"<article>{markdown.markdown(intro)}<ol class=chapters>{chapters}</ol>"
                   '<p><a href="names.html">An index of all names</a> stands at the end.</p></article>')

    def index(self):
        letters = {}
        listed = {(name.name.lower(), name.name, name.scope, name.target.path): name for name in self.names.names.values()
                  if name.public or name.kind in ("class", "struct", "enum", "function", "macro")}
        for (key, label, scope, path), name in sorted(listed.items(), key=lambda item: item[0]):
            if name.kind not in ("constructor", "destructor") and IDENTIFIER.fullmatch(label):
                where = scope if name.public or scope else path.split("/")[-1]
                letters.setdefault(key[0].upper(), []).append(
                    f"<li>{self.link(name.target, label)}{f' <span>in {where}</span>' if where else ''}</li>")
        jump = " ".join(f'<a href="#{letter}">{letter}</a>' for letter in letters)
        body = "".join(f'<h2 id="{letter}">{letter}</h2><ul>{"".join(items)}</ul>' for letter, items in letters.items())
        self.write("names.html", "Names", f'<h1>Names</h1><p class="jump">{jump}</p><div class="names">{body}</div>', kind="index")

    def write_all(self):
        if self.out.exists():
            if not (self.out / "names.html").exists():
                sys.exit(f"site.py: {self.out} is there, and no site; name another folder")
            shutil.rmtree(self.out)
        here = Path(__file__).parent
        shutil.copytree(here / "pictures", self.out / "pictures")
        shutil.copy(here / "style.css", self.out)
        for chapter in self.chapters:
            for unit in chapter.units:
                files = "\n".join(self.listing(path) for path in self.units_of(unit))
                self.write(page_of(unit), unit, f"<h1>{unit}</h1>\n{files}", chapter, "code")
        self.index()
        self.contents()
        for chapter in self.chapters:
            self.prose(chapter)
        if self.wrong:
            sys.exit("\n".join(self.wrong))


def main():
    build, out = (Path(path).resolve() for path in sys.argv[1:3])
    Site(build, out).write_all()
    print(f"the book: {out}/index.html")


if __name__ == "__main__":
    main()
