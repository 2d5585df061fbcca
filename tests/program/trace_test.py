#!/usr/bin/env python3
"""`ringgrad trace --perfetto --svg`: the trace-event file is one that Perfetto can make sense of, and tells the truth.

trace_test.py PATH_TO_RINGGRAD [test names]
"""

import json, re, sys, unittest
import xml.etree.ElementTree as ET
from collections import defaultdict

from program_case import ProgramCase

SLACK = 0.002  # microseconds: numbers are written as decimals


def check(trace):
    """Says what is wrong with a trace: slices must be closed and nested, processes and threads named, arrows have two ends."""
    wrong = []
    events = trace["traceEvents"]
    named = defaultdict(set)
    for event in events:
        if event["ph"] == "M":
            named[event["name"]].add((event["pid"], event["tid"]))
    slices = defaultdict(list)
    arrows = defaultdict(list)
    for event in events:
        track = (event["pid"], event["tid"])
        if event["ph"] == "M":
            continue
        if track not in named["thread_name"] or event["pid"] not in {pid for pid, _ in named["process_name"]}:
            wrong.append(f"no name: {event}")
        if event["ts"] < 0:
            wrong.append(f"before the beginning: {event}")
        if event["ph"] == "X":
            if event["dur"] < 0:
                wrong.append(f"ends before it begins: {event}")
            slices[track].append(event)
        elif event["ph"] in "BE":
            wrong.append(f"a slice may stay open: {event}")
        elif event["ph"] in "sf":
            arrows[event["id"]].append(event)
        else:
            wrong.append(f"an unknown kind: {event}")
    for track, of in slices.items():
        of.sort(key=lambda e: (e["ts"], -e["dur"]))
        ends = []
        for slice in of:
            while ends and ends[-1] <= slice["ts"] + SLACK:
                ends.pop()
            end = slice["ts"] + slice["dur"]
            if ends and end > ends[-1] + SLACK:
                wrong.append(f"neither beside nor inside the slice before it, on {track}: {slice}")
            ends.append(end)
    for arrow in arrows.values():
        if [e["ph"] for e in arrow] != ["s", "f"]:
            wrong.append(f"an arrow without one end: {arrow}")
            continue
        begin, end = arrow
        if begin["ts"] > end["ts"] + SLACK:
            wrong.append(f"an arrow back in time: {arrow}")
        for event, want in (
            (begin, lambda s: s["name"] == event["name"]),
            (end, lambda s: event["name"] in s["args"].get("parameters", [])),
        ):
            around = [
                s
                for s in slices[(event["pid"], event["tid"])]
                if s["ts"] - SLACK <= event["ts"] <= s["ts"] + s["dur"] + SLACK
            ]
            if not any(want(s) for s in around):
                wrong.append(f"an arrow that ends in another slice: {event}")
    for track, of in slices.items():  # each parameter of a bucket has its arrow
        for bucket in (s for s in of if s["name"].startswith("bucket")):
            come = {
                e[1]["name"]
                for e in arrows.values()
                if len(e) == 2 and (e[1]["pid"], e[1]["tid"]) == track and abs(e[1]["ts"] - bucket["ts"]) <= SLACK
            }
            missing = set(bucket["args"]["parameters"]) - come
            if missing:
                wrong.append(f"no arrow of {missing} to {bucket['name']} on {track}")
    return wrong


class Trace(ProgramCase):
    def trace(self, *words):
        done = self.run_program(
            "trace", "--batch", "6", "--steps", "4", "--perfetto", "t.json", "--svg", "t.svg", *words
        )
        return json.loads((self.dir / "t.json").read_text()), done

    def test_the_trace_is_whole(self):
        trace, done = self.trace("--ranks", "3", "--json")
        self.assertEqual(check(trace), [])
        document = json.loads(done.stdout)
        events = trace["traceEvents"]
        for rank in range(3):
            mine = [e for e in events if e["pid"] == rank and e["ph"] == "X"]
            self.assertEqual(
                [e["name"] for e in mine if e["cat"] == "step"][:4], ["zero_grad", "forward", "backward", "optimizer"]
            )
            buckets = [e for e in mine if e["name"].startswith("bucket")]
            self.assertEqual([e["args"]["bytes"] for e in buckets], [b["bytes"] for b in document["buckets"]])
            ready = [e["name"] for e in mine if e["cat"].startswith("gradients")]
            self.assertEqual(len(ready), len(set(ready)))
            self.assertEqual(set(ready), {p for b in buckets for p in b["args"]["parameters"]})
            self.assertIn("conv1.weight", ready)
            layers = [e["name"] for e in mine if e["cat"] == "layers"]
            self.assertEqual(layers[0], "conv1")
            self.assertEqual(layers[-1], "conv1 backward")
            self.assertTrue({"conv2d", "batch_norm_stats"} <= {e["name"] for e in mine if e["cat"] == "kernels"})
        shown = [e for e in events if e["pid"] == 0 and e.get("cat", "").startswith("buckets")]
        begun = shown[0]["ts"] - document["buckets"][0]["launched_ms"] * 1e3
        for event, bucket in zip(shown, document["buckets"]):  # the same times in both
            self.assertAlmostEqual(event["ts"] + event["dur"] - begun, bucket["completed_ms"] * 1e3, delta=200)

    def test_clocks_agree(self):
        """All ranks run here, on one and the same clock: what is measured may be off by no more than it says."""
        trace, _ = self.trace()
        clocks = trace["otherData"]["clocks"]
        self.assertEqual([c["rank"] for c in clocks], [0, 1])
        for clock in clocks:
            self.assertLessEqual(abs(clock["offset_us"]), clock["error_bound_us"] + 0.001)

    def test_the_checker_sees(self):
        good, _ = self.trace()
        self.assertEqual(check(good), [])

        def broken(change):
            trace = json.loads(json.dumps(good))
            change(trace["traceEvents"])
            return check(trace)

        def first(events, kind, name=""):
            return next(e for e in events if e["ph"] == kind and e.get("name", "").startswith(name))

        def ends_within_backward(events):
            forward, backward = first(events, "X", "forward"), first(events, "X", "backward")
            forward["dur"] = backward["ts"] + backward["dur"] / 2 - forward["ts"]

        for change, said in (
            (lambda e: e.remove(first(e, "f")), "without one end"),
            (lambda e: e.remove(first(e, "s")), "without one end"),
            (lambda e: e.remove(first(e, "M", "thread_name")), "no name"),
            (lambda e: first(e, "X").update(dur=-1), "ends before"),
            (ends_within_backward, "neither beside nor inside"),
            (lambda e: first(e, "f").update(ts=0), "back in time"),
            (lambda e: first(e, "X", "bucket 0")["args"]["parameters"].append("another"), "no arrow of"),
        ):
            self.assertTrue(any(said in wrong for wrong in broken(change)), said)

    def test_the_picture(self):
        self.trace()
        root = ET.parse(self.dir / "t.svg").getroot()
        text = (self.dir / "t.svg").read_text()
        self.assertEqual(re.findall(r"(?:href|src|url)\b", text), [])
        self.assertIn("prefers-color-scheme: dark", text)
        words = ["".join(e.itertext()) for e in root.iter("{http://www.w3.org/2000/svg}text")]
        self.assertIn("rank 0", words)
        self.assertIn("rank 1", words)
        width = float(root.get("width"))
        for rect in root.iter("{http://www.w3.org/2000/svg}rect"):
            self.assertLessEqual(float(rect.get("x", 0)) + float(rect.get("width")), width)

    def test_eighty_columns_and_the_median(self):
        done = self.run_program("trace", "--batch", "6", "--steps", "5", "--bucket-mb", "0.1")
        for line in (done.stdout + done.stderr).splitlines():
            self.assertLessEqual(len(line), 80, line)
        self.assertIn("Of 3 steps the median", done.stdout)
        self.assertRegex(done.stdout, r"\S+weight is larger than a bucket, and travels in \d")

    def test_parameters_have_their_layers_names(self):
        text = self.run_program("trace", "--model", "resnet20", "--batch", "4", "--steps", "1", "--bucket-mb", "0.1").stdout
        names = re.findall(r"(?m)^ +\d+ +[\d.]+ [kM]?B(?: +[\d.]+){3}  (\S+)", text)
        self.assertGreater(len(names), 5)
        for name in names:
            self.assertRegex(name, r"^(conv1|bn1|layer\d|fc)")
        self.assertRegex(text, r"layer\d\.\d\.\w+\.\w+ and \d+ more")

    def test_several_buckets_below_each_other(self):
        done = self.run_program("trace", "--batch", "6", "--steps", "4", "--bucket-mb", "0.1,0.5,25", "--json")
        shown = json.loads(done.stdout)["traces"]
        self.assertEqual([one["bucket_mb"] for one in shown], [0.1, 0.5, 25])
        counts = [len(one["buckets"]) for one in shown]
        self.assertEqual(counts, sorted(counts, reverse=True))
        self.assertEqual(counts[-1], 1)
        self.assertEqual(done.stderr.count("buckets of"), 3)
        done = self.run_program("trace", "--bucket-mb", "1,2", "--svg", "t.svg", code=2)
        self.assertIn("show one --bucket-mb", done.stderr)

    def test_a_file_that_cannot_be_written(self):
        done = self.run_program("trace", "--batch", "4", "--steps", "1", "--perfetto", "no/such/t.json", code=8)
        self.assertIn("no/such/t.json", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
