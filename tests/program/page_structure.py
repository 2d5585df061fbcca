"""Rules for every page of the program, so that all can read it: `breaches(page)` names those that one breaks.

It needs no browser. axe_test.py looks at the same pages with one.
"""

import collections, re
import xml.etree.ElementTree as ET

SVG = "{http://www.w3.org/2000/svg}"
HEADINGS = ("h1", "h2", "h3", "h4")
FILLS = {"data", "forward", "compute", "communicate", "wait", "optimizer"}  # classes of shapes, each with a colour
TEXT, SHAPE = 4.5, 3.0  # the least contrast, by WCAG 2.2


def luminance(colour):
    digits = colour.lstrip("#")
    digits = "".join(2 * d for d in digits) if len(digits) == 3 else digits
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear))


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def weak_contrasts(style):
    """Pairs of colours that do not stand out from each other, of the variables for light and for dark."""
    themes = [dict(re.findall(r"--(\w+): *(#[0-9a-f]+)", block)) for block in re.findall(r":root *{([^}]*--[^}]*)}", style)]
    if len(themes) != 2 or set(themes[0]) != set(themes[1]):
        return ["light and dark have other colours"]
    weak = []
    for name, theme in zip(("light", "dark"), themes):
        colours = set(theme) - {"ink", "paper", "soft", "fill", "new", "done"}
        pairs = [("ink", on, TEXT) for on in ("paper", "fill", "new", "done")] + [(c, "paper", TEXT) for c in colours]
        pairs += [(c, on, SHAPE) for c in ("orange", "green") for on in ("new", "done")[c == "green" :][:1]]
        weak += [f"{name}: {a} on {b} is {contrast(theme[a], theme[b]):.2f}, expected {least}"
                 for a, b, least in pairs if contrast(theme[a], theme[b]) < least]
    return weak


def of_svg(svg):
    title = svg.find("title")
    if svg.get("role") != "img" or title is None or not (title.text or "").strip():
        yield f"a picture without role or title: {ET.tostring(svg)[:80]}"


def of_figure(figure):
    rows = figure.findall("./details//tbody/tr")
    if figure.find("./details/summary") is None or not rows:
        yield "a picture without its numbers"
    used = {c for shape in figure.iter() for c in shape.get("class", "").split()} & FILLS
    explained = {c for key in figure.findall("./p//rect") for c in key.get("class", "").split()}
    plain = used == {"compute"} and not explained  # the bars of one histogram, which has no other colour
    if used - explained and not plain:
        yield f"colours without a meaning: {sorted(used - explained)}"


def of_table(table, parents):
    around = parents[table]
    if around.get("tabindex") != "0" or not around.get("aria-label") or not around.get("role"):
        yield "a table that cannot be scrolled by keys"
    for th in table.iter("th"):
        if th.get("scope") not in ("row", "col") or not "".join(th.itertext()).strip():
            yield f"a heading of a table without scope or words: {ET.tostring(th)[:80]}"


def breaches(page):
    root = ET.fromstring(page.removeprefix("<!DOCTYPE html>"))
    parents = {child: parent for parent in root.iter() for child in parent}
    found = [] if page.startswith("<!DOCTYPE html>") else ["no doctype"]
    if root.get("lang") != "en" or not (root.findtext("head/title") or "").strip():
        found.append("no language or title")
    body = root.find("body")
    landmarks = [e.tag for e in body]
    headings = [e for e in body.iter() if e.tag in HEADINGS]
    sections = [e for e in headings if e.tag == "h2"]
    expected = ["header"] + ["nav"] * (len(sections) > 1) + ["main", "footer"]
    if landmarks != expected:
        found.append(f"the body has {landmarks}, expected {expected}")
    levels = [int(e.tag[1]) for e in headings]
    if levels[:1] != [1] or levels.count(1) != 1 or any(b > a + 1 for a, b in zip(levels, levels[1:])):
        found.append(f"headings out of order: {levels}")
    ids = collections.Counter(e.get("id") for e in root.iter() if e.get("id"))
    found += [f"the id {name} twice" for name, count in ids.items() if count > 1]
    links = [e.get("href") for e in body.findall("nav//a")]
    if len(sections) > 1 and links != ["#" + (e.get("id") or "") for e in sections]:
        found.append("the links are not those of the sections")
    if body.find("header//time") is None:
        found.append("no date")
    for e in body.iter():
        if e.tag == "svg":
            found += of_svg(e)
            if int(e.get("width")) > 10 and not any(parent.tag == "figure" for parent in above(e, parents)):
                found.append("a picture outside a figure")
        elif e.tag == "figure":
            found += of_figure(e)
        elif e.tag == "table":
            found += of_table(e, parents)
        elif e.tag == "img" and not (e.get("alt") or "").strip():
            found.append("an image without words")
    return found + weak_contrasts(root.findtext("head/style"))


def above(element, parents):
    while element in parents:
        element = parents[element]
        yield element
