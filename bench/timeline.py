#!/usr/bin/env python3
"""Traces one training step for README, by `ringgrad trace`. Writes bench/results/timeline.json and bench/timeline.svg.

    timeline.py            measure, then draw
    timeline.py --draw     draw the last measurement
"""

import html
import json
import sys

import results

ARGUMENTS = ["--model", "resnet18", "--batch", "64", "--bucket-mb", "4"]
WIDTH, LEFT, RIGHT, TOP, ROW = 880, 270, 20, 56, 20  # in pixels; LEFT holds the names
STYLE = """
text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #1f2328; }
.quiet { fill: #656d76; } .grid { stroke: #d0d7de; } .backward { fill: #8250df; } .waits { fill: #c8e1ff; }
.flies { fill: #0969da; } .end { stroke: #8250df; stroke-dasharray: 4 3; } .exposed { fill: #ffd8b5; opacity: .5; }
.ready { stroke: #fff; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .quiet { fill: #8d96a0; } .grid { stroke: #30363d; } .waits { fill: #1f3a5f; }
  .flies { fill: #58a6ff; } .exposed { fill: #6e4321; } .ready { stroke: #0d1117; }
}"""


def measure():
    document = results.ringgrad("trace", *ARGUMENTS)
    rows = [[str(number), f"{bucket['bytes'] / 2**20:.1f} MiB", *(f"{bucket[when]:.1f}" for when in
             ("ready_ms", "launched_ms", "completed_ms")), bucket["parameters"]]
            for number, bucket in enumerate(document["buckets"])]
    results.save("timeline", "One training step of ResNet-18 on two ranks: when each bucket of gradients travels",
                 ["bucket", "size", "ready", "launched", "completed", "parameters"], rows,
                 note=f"`ringgrad trace {' '.join(ARGUMENTS)}`, rank 0, milliseconds since backward began. It took "
                      f"{document['backward_ms']:.1f} ms; the gradients were averaged "
                      f"{document['averaged_ms'] - document['backward_ms']:.1f} ms after it ended.", details=document)


def first_and_last(names):
    """"fc.weight layer4.1.bn2.bias … conv1.weight (62 parameters)" -> "fc.weight … conv1.weight"; short enough for LEFT."""
    listed = names.split(" (")[0].split()
    text = listed[0] if len(listed) == 1 else f"{listed[0]} … {listed[-1]}"
    return text if len(text) <= 33 else text[:32] + "…"


def draw(trace):
    buckets, end, done = trace["buckets"], trace["backward_ms"], trace["averaged_ms"]
    bottom = TOP + ROW * (len(buckets) + 1)
    shapes = []

    def x(ms):
        return LEFT + ms / done * (WIDTH - LEFT - RIGHT)

    def bar(of, row, begin, until, tip=""):
        width = max(x(until) - x(begin), 1.5)
        shapes.append(f'<rect class="{of}" x="{x(begin):.1f}" y="{TOP + row * ROW + 3}" width="{width:.1f}" '
                      f'height="{ROW - 6}" rx="2"><title>{html.escape(tip)}</title></rect>')

    def text(at, y, words, anchor="start", of=""):
        shapes.append(f'<text class="{of}" x="{at:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>')

    shapes.append(f'<rect class="exposed" x="{x(end):.1f}" y="{TOP}" width="{x(done) - x(end):.1f}" height="{bottom - TOP}"/>')
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if done / s <= 8)
    for ms in range(0, int(done) + 1, step):
        shapes.append(f'<line class="grid" x1="{x(ms):.1f}" y1="{TOP}" x2="{x(ms):.1f}" y2="{bottom}"/>')
        text(x(ms), TOP - 6, f"{ms} ms" if ms == 0 else str(ms), "middle", "quiet")
    text(LEFT - 8, TOP + ROW - 6, "backward", "end")
    bar("backward", 0, 0, end, f"backward: {end:.1f} ms")
    for number, bucket in enumerate(buckets):
        ready, launched, completed = (bucket[when] for when in ("ready_ms", "launched_ms", "completed_ms"))
        at = f"{x(ready):.1f}"
        shapes.append(f'<line class="ready" x1="{at}" y1="{TOP + 3}" x2="{at}" y2="{TOP + ROW - 3}"/>')
        text(LEFT - 8, TOP + (number + 2) * ROW - 6, first_and_last(bucket["parameters"]), "end")
        bar("waits", number + 1, ready, launched, f"bucket {number} is ready at {ready:.1f} ms")
        bar("flies", number + 1, launched, completed, f"bucket {number}: {launched:.1f} to {completed:.1f} ms")
    shapes.append(f'<line class="end" x1="{x(end):.1f}" y1="{TOP}" x2="{x(end):.1f}" y2="{bottom}"/>')
    text(8, 20, f"One step of {trace['model']}, batch {trace['batch']}, on {trace['ranks']} ranks: a bucket of gradients flies "
                "while backward still runs")
    text(8, bottom + 20, f"Each row a bucket: light: ready, others go first; dark: its all-reduce. Not hidden behind backward: "
                         f"{done - end:.1f} of {done:.1f} ms.", of="quiet")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 32}" width="{WIDTH}" role="img">'
            f"<title>Timeline of one training step</title><style>{STYLE}</style>\n" + "\n".join(shapes) + "\n</svg>\n")


def main():
    if "--draw" not in sys.argv[1:]:
        measure()
    measured = json.loads((results.FOLDER / "timeline.json").read_text())
    (results.ROOT / "bench" / "timeline.svg").write_text(draw(measured["details"]))


if __name__ == "__main__":
    main()
