#!/usr/bin/env python3
"""The annotated book: book_site_test.py BUILD. Writes the site, follows every link, and looks for every file and every public
name. What there should be is read from README.md and from the headers' text, not as the site's own scripts read them."""

import html
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(sys.argv[1]).resolve()
DECLARED = [
    re.compile(r"^(?:template <.*>\s)?(?:class|struct|enum class) (\w+)(?: final)?(?: :[^;]*)? \{", re.M),
    re.compile(r"^using (\w+) =", re.M),
    re.compile(r"^#define (\w+)", re.M),
    re.compile(r"^(?:inline |constexpr |template <class T>\n)*(?!using |return |else |namespace |template |static_assert)"
               r"[\w:]+(?:<[\w:<>*&, ]*>)?[ *&]+(\w+)\([^;{]*\)[^;{]*[;{]", re.M),
]


class Page(HTMLParser):
    def __init__(self, file):
        super().__init__()
        self.ids, self.links = [], []
        self.feed(file.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "src"):
                self.links.append(value)
            if tag == "img" and name == "src" and not dict(attributes).get("alt"):
                self.links.append(f"{value} without a text alternative")


def broken(site):
    """Links that lead nowhere, or out of the site, and ids that stand twice."""
    pages = {file.name: Page(file) for file in site.glob("*.html")}
    wrong = []
    for name, page in pages.items():
        wrong += [f"{name}: id {twice} stands twice" for twice in {i for i in page.ids if page.ids.count(i) > 1}]
        for link in page.links:
            target, _, part = link.partition("#")
            there = pages.get(target or name)
            if not link.startswith("data:image/png;base64,") and not (
                    there and (not part or part in there.ids) if "." not in target or target.endswith(".html")
                    else (site / target).is_file()):
                wrong.append(f"{name}: {link}")
    return wrong


class BookSite(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="ringgrad-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.site = cls.folder / "site"
        run = subprocess.run([sys.executable, ROOT / "book/site.py", BUILD, cls.site], capture_output=True, text=True)
        if run.returncode == 77:
            print(run.stdout)
            sys.exit(77)
        assert run.returncode == 0, run.stdout + run.stderr
        cls.texts = {file.name: file.read_text() for file in cls.site.glob("*.html")}
        cls.headers = [path for text in cls.texts.values() for path in re.findall(r'<h2 id="h">(\S+)</h2>', text)]

    def test_every_link_leads_somewhere(self):
        self.assertEqual(broken(self.site), [])
        self.assertGreater(sum(text.count("<a ") for text in self.texts.values()), 10_000)
        copy = shutil.copytree(self.site, self.folder / "copy")
        page = copy / "core-tensor.html"
        page.write_text(page.read_text() + '<a href="core-tensors.html">x</a><a href="names.html#!">y</a><img src="https://a.b/c.png" alt="z">')
        self.assertEqual(len(broken(copy)), 3)

    def test_every_file_of_the_book_has_its_place(self):
        listed = re.search(r"<!-- book -->(.*?)<!-- end -->", (ROOT / "README.md").read_text(), re.S)[1]
        files = {f"{room}/{name}.cpp" for room, names in re.findall(r"\| \[(\S+)/\]\S+ \| (.*) \|", listed) for name in names.split()}
        self.assertGreater(len(files), 90)
        shown = [path for text in self.texts.values() for path in re.findall(r'<h2 id="[ch]">(\S+)</h2>', text)]
        self.assertEqual(sorted(files - set(shown)), [])
        self.assertEqual(len(shown), len(set(shown)))
        included = {match for path in shown for match in re.findall(r'#include "ringgrad/(\S+)"', (ROOT / path).read_text())}
        self.assertEqual(sorted(included - set(shown)), [])

    def test_every_line_of_code_is_shown(self):
        for name, text in self.texts.items():
            for path, listing in re.findall(r'<h2 id="[ch]">(\S+)</h2>\n<div class="listing">(.*?)(?=\n<h2|\n</main>)', text, re.S):
                pieces = re.findall(r"(?<=<div class=\"row\">)<pre>.*?</pre>|(?<=</div>)<pre>.*?</pre>", listing, re.S)
                shown = html.unescape(re.sub(r"<[^>]*>", "", "\n".join(pieces))).split()
                lines = [line for line in (ROOT / path).read_text().splitlines() if not line.lstrip().startswith("//")]
                self.assertEqual(shown, "\n".join(lines).split(), path)

    def test_every_public_name_is_in_the_index(self):
        index = set(re.findall(r"<li><a [^>]*>(\w+)</a>", self.texts["names.html"]))
        public = {name for path in self.headers for pattern in DECLARED for name in pattern.findall((ROOT / path).read_text())} - {"decltype"}
        self.assertGreater(len(public), 400)
        self.assertEqual(sorted(public - index), [])

    def test_a_name_leads_to_a_line_that_has_it(self):
        sources, links = {}, 0
        for name, text in self.texts.items():
            for path in re.findall(r'<h2 id="[ch]">(\S+)</h2>', text):
                sources[name, path[path.rindex(".") + 1]] = (ROOT / path).read_text().splitlines()
        for name, text in self.texts.items():
            for target, side, line, word in re.findall(r'<a href="([\w-]+\.html)#([ch])(\d+)"[^>]*>~?(\w+)</a>', text):
                links += 1
                self.assertIn(word, sources[target, side][int(line) - 1], f"{name} to {target}")
        self.assertGreater(links, 10_000)

    def test_types_are_linked_wherever_they_are_used(self):
        types = {name for path in self.headers for name in DECLARED[0].findall((ROOT / path).read_text())}
        unlinked = [f"{name}: {word}" for name, text in self.texts.items()
                    for word in re.findall(r'<span class="n[a-z]?">(\w+)</span>', text) if word in types]
        linked = sum(len(re.findall(r'<span class="n[a-z]?"><(?:a|dfn) ', text)) for text in self.texts.values())
        self.assertLess(len(unlinked), linked / 200, unlinked)

    def test_a_chapter_has_its_parts(self):
        chapters = {name: text for name, text in self.texts.items() if re.match(r"\d", name)}
        self.assertEqual(len(chapters), 9)
        for name, text in chapters.items():
            self.assertIn('src="pictures/', text, name)
            self.assertNotIn("<!--", text, name)
            self.assertLess(len(re.sub(r"<figure.*?</figure>|<aside.*|<[^>]*>", "", text, flags=re.S).split()), 600, name)
        whole = "".join(chapters.values())
        for words in ("[rank 1] was killed by signal 9", "Twenty drawn digits", "0.5000 to #22", "% test accuracy"):
            self.assertIn(words, re.sub(r"<[^>]*>", "", whole) + whole)

    def test_pictures_have_a_title_and_follow_the_page(self):
        for picture in (self.site / "pictures").glob("*.svg"):
            text = picture.read_text()
            self.assertRegex(text, r"<title>.{20,}</title>", picture)
            self.assertIn("prefers-color-scheme: dark", text, picture)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
