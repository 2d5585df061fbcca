#!/usr/bin/env python3
"""Tests files of other origin: program_files_test.py PATH_TO_RINGGRAD [test names].

Runs and pictures come from colleagues, archives and the network. They are read in bounded time and memory, or refused by
name, and what they say decides neither where something is written nor whether other files can be read."""

import json, pathlib, shutil, struct, sys, unittest, zlib

from program_case import PROGRAM, ProgramCase, rewrite_safetensors, write_tiny
from program_own_test import QUICK, READS, write_ppm

RUNS = pathlib.Path(__file__).resolve().parent / "runs"
DEEP = "[" * 80_000 + "]" * 80_000


def files_below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def png(width, height, depth=8, colour=6, data=b"\0" * 10):
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b""))


def jpeg_of_scans(width, height, scans):
    """A gray progressive JPEG: each scan says in a few bytes that no block has anything to add."""
    part = lambda kind, data: struct.pack(">BBH", 0xFF, kind, len(data) + 2) + data
    table = lambda kind, symbol: part(0xC4, bytes([kind]) + bytes([1] + [0] * 15) + bytes([symbol]))
    blocks = ((width + 7) // 8) * ((height + 7) // 8)
    first = part(0xDA, bytes([1, 1, 0x00, 0, 0, 0])) + bytes(blocks // 8 + 1)
    runs = -(-blocks // 0x4000)  # code 0 and 14 bits: so many blocks end
    bits = "".join("0" + "0" * 14 for _ in range(runs))
    bits += "1" * (-len(bits) % 8)
    later = part(0xDA, bytes([1, 1, 0x00, 1, 63, 0])) + bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))
    return (b"\xff\xd8" + part(0xDB, bytes([0]) + bytes([1] * 64))
            + part(0xC2, struct.pack(">BHHB", 8, height, width, 1) + bytes([1, 0x11, 0]))
            + table(0x00, 0) + table(0x10, 0xE0) + first + later * (scans - 1) + b"\xff\xd9")


class Files(ProgramCase):
    def copy(self, name, number, *parts, text=None):
        """A run of tests/runs; `text` comes in the place of a value of one of its files."""
        run = self.dir / "runs" / f"{number:04}-{name}"
        shutil.copytree(RUNS / name, run)
        if parts:
            file, *keys = parts
            text_there = (run / file).read_text()
            document = json.loads(text_there.splitlines()[0] if file.endswith("l") else text_there)
            inner = document
            for key in keys[:-1]:
                inner = inner[key]
            inner[keys[-1]] = "HERE"
            (run / file).write_text(json.dumps(document).replace('"HERE"', text) + "\n")
        return run

    # ---- JSON ----------------------------------------------------------------------------------------------------

    def test_nested_brackets_cost_the_others_nothing(self):
        places = [("finished", "config.json", "recipe", "lr"), ("finished", "config.json", "recipe", "more"), ("finished", "config.json", "seed"),
                  ("finished", "config.json", "division", "ranks"), ("finished", "config.json", "data_dir"),
                  ("finished", "metrics.jsonl", "loss"), ("finished", "metrics.jsonl", "gradient_norms"),
                  ("finished", "summary.json", "ranks"), ("finished", "summary.json", "machine"),
                  ("gan", "config.json", "gan", "lr"), ("gan", "metrics.jsonl", "step"),
                  ("cart", "config.json", "reinforce", "seed"), ("bench", "measurements.json", "model"), ("bench", "measurements.json", "rounds")]
        for number, (name, *place) in enumerate(places, 1):
            self.copy(name, number, *place, text=DEEP)
        self.copy("finished", 99)
        self.assertIn("0099-finished", self.run_program("runs").stdout)
        for number, (name, *place) in enumerate(places, 1):
            for words in (["report"], ["watch"], ["eval"], ["predict"], ["compare", "99"], ["train", "--resume"], ["train", "--max-steps", "1", "--init"],
                          ["inspect"], ["bench", "ddp", "--from"], ["gan", "--resume"], ["reinforce", "--resume"]):
                with self.subTest(place=place, words=words):
                    run = str(number)
                    more = ["0"] if words == ["predict"] else []
                    done = self.start(*words, run, *more)
                    done.communicate(timeout=60)
                    self.assertIn(done.returncode, range(9))

    def test_nested_brackets_in_weights_and_observations(self):
        write_tiny(self.dir / "data/digits")
        self.run_program("train", "--parallel", "none", "--batch", "8", "--max-steps", "2", "--out", "run")
        for file in ("checkpoint", "model"):
            path = self.dir / f"run/{file}.safetensors"
            data = path.read_bytes()
            length = struct.unpack("<Q", data[:8])[0]
            header = json.loads(data[8 : 8 + length])
            about = {key: value for key, value in header.pop("__metadata__").items() if not key.startswith("sha256")}
            for key in about:
                changed = {**about, key: DEEP}
                text = json.dumps({"__metadata__": changed, **header}).encode()
                path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])
                for words in (["train", "--resume", "run"], ["eval", "run"], ["inspect", str(path)], ["report", "run"], ["runs", "."],
                              ["train", "--init", str(path), "--max-steps", "1", "--parallel", "none"]):
                    with self.subTest(file=file, key=key, words=words):
                        done = self.start(*words)
                        done.communicate(timeout=60)
                        self.assertIn(done.returncode, range(9))
            text = ('{"a":' + DEEP + "}").encode()
            path.write_bytes(struct.pack("<Q", len(text)) + text)
            self.run_program("inspect", str(path), code=4)
            path.write_bytes(data)
        (self.dir / "seen").mkdir()
        (self.dir / "seen/0.json").write_text('{"rank":0,"passes":' + DEEP + "}")
        self.run_program("lint", "--from", "seen", code=4)

    # ---- numbers of charts ---------------------------------------------------------------------------------------

    NUMBERS = ["5e-324", "1e-310", "2.2250738585072014e-308", "1e-30", "1", "1.0000000000000002", "1e30", "1e300", "1.7976931348623157e308"]

    def test_every_number_has_a_chart(self):
        """A pair of numbers, each of which may be anything that JSON can say, in each chart of the page."""
        line = json.loads((RUNS / "finished/metrics.jsonl").read_text().splitlines()[0])
        numbers = self.NUMBERS + ["-" + number for number in self.NUMBERS] + ["0", "-0.0"]
        run = self.copy("finished", 1)
        for a in numbers:
            for key in ("loss", "test_loss", "test_accuracy", "gradient_norms"):
                with self.subTest(a=a, key=key):
                    lines = []
                    for epoch, number in enumerate([a, *numbers], 1):
                        value = {"fc": "HERE"} if key == "gradient_norms" else "HERE"
                        lines.append(json.dumps({**line, "epoch": epoch, "step": 4 * epoch, key: value}).replace('"HERE"', number))
                    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
                    self.chart_is_whole()
            for other in ("0", a, "1e300", "-1"):
                with self.subTest(histogram=(a, other)):
                    summary = json.loads((RUNS / "finished/summary.json").read_text())
                    summary["step_histogram"].update(low_ms="A", high_ms="B")
                    summary["ranks"][0]["step_ms"]["data"] = "A"
                    summary["steps_per_epoch"] = 2**62
                    (run / "summary.json").write_text(json.dumps(summary).replace('"A"', a).replace('"B"', other))
                    self.chart_is_whole()

    def chart_is_whole(self):
        self.run_program("report", "1", "--out", "page.html")
        page = (self.dir / "page.html").read_text()
        for svg in page.split("<svg")[1:]:
            svg = svg[: svg.index("</svg>")]
            self.assertNotRegex(svg, r'(="|[MLHV ])-?(nan|inf)')
            self.assertLessEqual(svg.count('class="grid"'), 30)

    def test_watch_draws_every_number(self):
        lines = [json.dumps({"step": step, "loss": "HERE"}).replace('"HERE"', number) for step, number in enumerate(self.NUMBERS, 1)]
        run = self.copy("finished", 1)
        (run / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text() + "\n".join(lines) + "\n")
        self.assertIn("1", self.on_a_terminal("watch", "1"))

    def test_lines_that_cannot_be_are_left_out(self):
        run = self.copy("finished", 1)
        good = (run / "metrics.jsonl").read_text()
        line = json.loads(good.splitlines()[-1])
        told = lambda: json.loads(self.run_program("runs", "--json").stdout)["runs"][0]
        before = told()
        self.assertEqual(before["notes"], [])
        for change in ({"epoch": 0}, {"epoch": -1}, {"step": -1}, {"test_accuracy": 7}, {"test_accuracy": -0.5}, None):
            with self.subTest(change=change):
                bad = json.dumps({**line, **change} if change else {"step": 0, "loss": 1}) + "\n"
                (run / "metrics.jsonl").write_text(good + bad)
                after = told()
                self.assertEqual(after.pop("notes"), ["metrics.jsonl: line 3 is damaged, and left out"])
                self.assertEqual(after, {key: before[key] for key in after})
        (run / "metrics.jsonl").write_text(json.dumps({**line, "epoch": 0}) + "\n")
        self.assertIn("ended", self.on_a_terminal("watch", "1"))
        self.assertIsNone(told()["test_accuracy"])  # no epoch has ended
        self.assertIsNone(json.loads(self.run_program("watch", "1", "--json").stdout)["test_accuracy"])

    # ---- pictures ------------------------------------------------------------------------------------------------

    def refused_picture(self, name, content, said):
        (self.dir / "pets/cat").mkdir(parents=True, exist_ok=True)
        (self.dir / "pets/cat" / name).write_bytes(content)
        done = self.run_program("data", "check", "pets", code=4)
        self.assertIn(said, done.stdout + done.stderr)
        (self.dir / "pets/cat" / name).unlink()

    def test_few_bytes_are_few_pixels(self):
        for i in range(4):
            write_ppm(self.dir / f"pets/cat/{i}.ppm", (1, 2, 3))
            write_ppm(self.dir / f"pets/dog/{i}.ppm", (3, 2, 1))
        if READS["PNG"]:
            self.refused_picture("a.png", png(16384, 16384), "pixels for a byte")
            self.refused_picture("a.png", png(16384, 16384, 1, 0), "pixels for a byte")
            self.refused_picture("a.png", png(16385, 1), "pixels a side")
            blank = png(3000, 2000, 1, 0, (b"\0" + b"\xff" * 375) * 2000)  # what a scanner makes of an empty page
            (self.dir / "pets/cat/blank.png").write_bytes(blank)
        if READS["JPEG"]:
            self.refused_picture("a.jpg", jpeg_of_scans(16384, 16384, 1)[:1000], "pixels for a byte")
            self.refused_picture("a.jpg", jpeg_of_scans(4000, 4000, 1000), "scans")
            self.refused_picture("a.jpg", jpeg_of_scans(16, 16, 1000), "scans")
            (self.dir / "pets/cat/ten.jpg").write_bytes(jpeg_of_scans(200, 100, 1))
        self.run_program("data", "check", "pets")

    # ---- where something is written ------------------------------------------------------------------------------

    def test_links_do_not_lead_out_of_a_run(self):
        write_tiny(self.dir / "data/digits")
        train = ["train", "--parallel", "none", "--batch", "8", "--epochs", "1"]
        self.run_program(*train, "--max-steps", "2", "--out", "run")
        (self.dir / "mine").write_text("mine")
        for name, words in (("checkpoint.safetensors", ["train", "--resume", "run"]), ("metrics.jsonl", ["train", "--resume", "run"]),
                            ("summary.json", ["train", "--resume", "run"]), ("model.safetensors", ["train", "--resume", "run"]),
                            ("report.html", ["report", "run"]), ("report.html", ["train", "--resume", "run"]),
                            ("worst.png", ["eval", "run", "--worst", "1"]), ("config.json", ["train", "--resume", "run"])):
            for target in (self.dir / "mine", "../mine", "../fresh"):
                with self.subTest(name=name, words=words, target=target):
                    path = self.dir / "run" / name
                    if there := path.exists():
                        path.rename(self.dir / "kept")
                        if (self.dir / "mine") == target:
                            shutil.copy(self.dir / "kept", self.dir / "mine")
                    before = (self.dir / "mine").read_bytes()
                    path.symlink_to(target)
                    done = self.start(*words)
                    out, err = done.communicate(timeout=60)
                    self.assertEqual(done.returncode, 4, err)
                    self.assertEqual((self.dir / "mine").read_bytes(), before)
                    self.assertFalse((self.dir / "fresh").exists())
                    path.unlink()
                    if there:
                        (self.dir / "kept").rename(path)
        (self.dir / "run/report.html").unlink(missing_ok=True)
        (self.dir / "run/page").write_text("here")
        (self.dir / "run/report.html").symlink_to("page")  # within the run
        self.run_program("report", "run")
        self.run_program("train", "--resume", "run")
        self.assertIn("<svg", (self.dir / "run/page").read_text())

    def test_a_file_does_not_say_where_data_is_written(self):
        write_tiny(self.dir / "data/digits")
        for kind, shade in (("cat", (200, 30, 20)), ("dog", (20, 90, 200))):
            for i in range(5):
                write_ppm(self.dir / f"pets/{kind}/{i}.ppm", shade)
        train = ["train", "--parallel", "none", "--max-steps", "1"]
        self.run_program(*train, "--batch", "8", "--out", "drawn")
        self.run_program(*train, "--data", "pets", *QUICK[:-1], "9", "--out", "own")
        self.run_program("gan", "--batch", "8", "--epochs", "1", "--max-steps", "1", "--out", "gan")
        theirs = self.dir / "theirs"
        for run in ("drawn", "own", "gan"):
            file = self.dir / run / "config.json"
            config = json.loads(file.read_text())
            (config["gan"] if run == "gan" else config)["data_dir"] = str(theirs)
            file.write_text(json.dumps(config))
        for there in (False, True):
            if there:
                theirs.mkdir()
            for run in ("drawn", "own"):
                for words in (["eval", run], ["report", run], ["predict", run, "0"], ["train", "--resume", run, "--max-steps", "1"]):
                    with self.subTest(words=words, there=there):
                        self.run_program(*words)
                        self.assertEqual(files_below(theirs), set())
            self.run_program("gan", "--resume", "gan", "--max-steps", "1")
            self.assertEqual(files_below(theirs), set())
        self.run_program("train", "--resume", "own", "--max-steps", "1", "--data-dir", str(theirs))  # the user has said it
        self.assertTrue(list(theirs.glob("cache/pets-*")))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
