#!/usr/bin/env python3
"""axe-core finds nothing on the program's pages, in the light and in the dark, at three widths: axe_test.py PATH_TO_RINGGRAD.

It needs Chromium, and axe.min.js: from npm's axe-core, PyPI's axe-playwright-python, or where RINGGRAD_AXE says. Without
them it is skipped: page_structure.py checks what needs no browser.
"""

import glob, html, importlib.util, json, os, pathlib, re, shutil, subprocess, sys, unittest

from program_case import ProgramCase
from verdict_cases import run, write

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTHS = (400, 800, 1400)


def axe():
    found = importlib.util.find_spec("axe_playwright_python")
    places = [os.environ.get("RINGGRAD_AXE", "")] + [f"{folder}/axe.min.js" for folder in (found.submodule_search_locations if found else [])]
    places += glob.glob("/usr/lib/node_modules/axe-core/axe.min.js") + glob.glob("/usr/local/lib/node_modules/axe-core/axe.min.js")
    return next((pathlib.Path(place) for place in places if place and pathlib.Path(place).is_file()), None)


# Frames have the widths, since a window cannot be as narrow; the page in each tells what axe has found there.
OUTSIDE = """<!DOCTYPE html><html><body>{frames}<script>const frames = [...document.querySelectorAll("iframe")], all = [];
const next = () => {{ const f = frames[all.length]; if (f) f.srcdoc = f.dataset.page;
                     else document.body.textContent = "axe says [" + all.join(",") + "] the end"; }};
onmessage = e => {{ all.push(e.data); next(); }}; next();</script></body></html>"""
FRAME = '<iframe style="width:{width}px;height:2000px;border:0" data-page="{page}"></iframe>'
# Nothing is cut: neither the page nor, with all details open, a table in it.
ASK = """<script>{axe}</script><script>addEventListener("load", () => {{
const details = open => document.querySelectorAll("details").forEach(d => d.open = open);
details(true);
const cut = [document.documentElement, ...document.querySelectorAll("table")].map(e => e.closest(".scroll") || e)
  .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => ["cut", e.scrollWidth, e.clientWidth, e.innerText.slice(0, 60)]);
details(false);
axe.run(document, {{resultTypes: ["violations"]}}).then(r => parent.postMessage(JSON.stringify(["{name}", innerWidth,
r.violations.map(v => [v.id, v.nodes.map(n => n.html.slice(0, 200))]).concat(cut)]), "*")) }});</script>"""


class Axe(ProgramCase):
    def violations(self, pages, dark):
        """Returns what axe finds, by page and width."""
        frames = ""
        for name, page in pages.items():
            asks = re.sub(r"<meta http-equiv[^>]*/>", "", page).replace("</body>", ASK.format(axe=axe().read_text(), name=name) + "</body>")
            frames += "".join(FRAME.format(width=width, page=html.escape(asks)) for width in WIDTHS)
        file = self.dir / "frame.html"
        file.write_text(OUTSIDE.format(frames=frames))
        words = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={self.dir}/browser", "--virtual-time-budget=100000",
                 f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--window-size=1600,2000", "--dump-dom", f"file://{file}"]
        dom = subprocess.run(words, capture_output=True, text=True, timeout=280).stdout
        said = re.search(r"axe says (\[\[.*\]\]) the end", dom)
        self.assertIsNotNone(said, dom[-300:])
        return {(name, width): found for name, width, found in json.loads(html.unescape(said[1]))}

    def test_nothing_is_found(self):
        for name in ("a", "b"):
            write(run(confusion=[1] * 100, recipe={"lr": 0.1 if name == "b" else 0.05}), self.dir / f"runs/{name}")
        commands = {"report": ["report", "runs/a", "--out"], "comparison": ["report", "runs/a", "runs/b", "--out"]}
        commands |= {topic: ["explain", topic, "--html"] for topic in ("autograd", "ring", "straggler")}
        pages = {}
        for name, words in commands.items():
            self.run_program(*words, "page.html")
            pages[name] = self.read_page("page.html")
        for dark in (False, True):
            self.assertEqual(self.violations(pages, dark), {(name, width): [] for name in pages for width in WIDTHS})
        # It would see a page without its landmark, whose words are as dark as the paper.
        broken = pages["ring"].replace("main>", "div>").replace("--ink: #e6e6e6", "--ink: #333")
        found = {rule for all in self.violations({"broken": broken}, True).values() for rule, _ in all}
        self.assertLessEqual({"landmark-one-main", "color-contrast"}, found)


if __name__ == "__main__":
    if not BROWSER or not axe():
        print("skipped: no Chromium, or no axe.min.js (npm's axe-core, PyPI's axe-playwright-python, or RINGGRAD_AXE=…)")
        sys.exit(0)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
