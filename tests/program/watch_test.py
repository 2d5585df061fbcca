#!/usr/bin/env python3
"""Tests the files that a run writes while it goes on, and their readers: metrics.jsonl, TensorBoard's file, `watch`,
train --trace-steps.

watch_test.py PATH_TO_RINGGRAD [test names]
"""

import fcntl, json, os, pathlib, pty, re, select, signal, struct, subprocess, sys, termios, time, unittest
import xml.etree.ElementTree as ET

from program_case import PROGRAM, ProgramCase, all_from_terminal, write_tiny
from trace_test import check

README = pathlib.Path(__file__).resolve().parents[2] / "program/README.md"


def crc32c(data):
    """Bit by bit, as RFC 3720 defines it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(message):
    """(number, value) of a protocol buffer's fields: numbers, or the bytes of 4, 8 and of counted ones."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    found = []
    while at < len(message):
        key = varint()
        size = {0: None, 1: 8, 5: 4}.get(key & 7)
        if key & 7 == 0:
            found.append((key >> 3, varint()))
            continue
        size = varint() if key & 7 == 2 else size
        found.append((key >> 3, message[at : at + size]))
        at += size
    assert at == len(message)
    return found


def events(data):
    """(step, {tag: value}) of each record, whose CRCs are right; the first one is the version."""
    at, all = 0, []
    while at < len(data):
        head = data[at : at + 8]
        (size,) = struct.unpack("<Q", head)
        body = data[at + 12 : at + 12 + size]
        assert struct.unpack_from("<I", data, at + 8)[0] == masked(head), "the length's CRC"
        assert struct.unpack_from("<I", data, at + 12 + size)[0] == masked(body), "the event's CRC"
        at += 16 + size
        event = dict(fields(body))
        scalars = {}
        for _, value in fields(event.get(5, b"")):
            value = dict(fields(value))
            scalars[value[1].decode()] = struct.unpack("<f", value[2])[0]
        all.append((event.get(2, event.get(3)), scalars))
    return all


class Runs(ProgramCase):
    """On a data set of 48 images, of which a batch has eight: an epoch has six steps."""

    def setUp(self):
        super().setUp()
        write_tiny(self.dir / "data/digits")

    def train(self, *words, **options):
        words = ("train", "--batch", "8", "--no-report", "--out", "run", *words)
        return self.run_program(*(words if "--ranks" in words else (*words, "--parallel", "none")), **options)

    def lines(self):
        return [json.loads(line) for line in (self.dir / "run/metrics.jsonl").read_text().splitlines()]

    def endless(self, *words):
        child = self.start("train", "--parallel", "none", "--batch", "8", "--epochs", "1000000", "--log-every", "2",
                           "--no-report", "--out", "run", *words)
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        self.wait_for("run/summary.json")
        return child

    def killed(self, *words):
        child = self.endless(*words)
        child.kill()
        child.communicate()

    # ---- metrics.jsonl -------------------------------------------------------------------------------------------

    def test_lines_of_steps_and_epochs_have_what_the_readme_says(self):
        self.train("--epochs", "3", "--log-every", "2", "--ranks", "2", "--lr", "0.001", "--schedule", "constant")
        steps = [line for line in self.lines() if "epoch" not in line]
        epochs = [line for line in self.lines() if "epoch" in line]
        self.assertEqual([line["step"] for line in steps], list(range(2, 19, 2)))
        self.assertEqual([line["epoch"] for line in epochs], [1, 2, 3])
        self.assertEqual({line["learning_rate"] for line in self.lines()}, {0.001})
        for line in epochs:
            # Each part of a step on each of two ranks; together they are the step, which the epoch is made of.
            self.assertEqual({len(times) for times in line["step_ms"].values()}, {2})
            whole = sum(times[0] for times in line["step_ms"].values()) * line["measured_steps"] / 1e3
            self.assertLess(whole, 1.1 * line["seconds"])
            self.assertEqual((len(line["busy_ms"]), len(line["starved_ms"])), (2, 2))
        self.assertEqual([line["measured_steps"] for line in epochs], [3, 6, 6])  # without those that tune
        for line in self.lines():
            self.assertEqual(set(line["gradient_norms"]), {"fc", "layer1.0", "layer1.1", "layer2.0", "layer2.1"})
            self.assertTrue(all(norm > 0 for norm in line["gradient_norms"].values()))
        table = README.read_text()
        for key in {key for line in self.lines() for key in line}:
            self.assertRegex(table, rf"(?m)^\| .*`{key}`", "a key that the README does not explain")

    def test_looking_changes_nothing(self):
        self.train("--epochs", "2", "--ranks", "2", "--log-every", "1", "--trace-steps", "4:9", "--tensorboard")
        looked = self.lines()[-1]["parameter_hash"]
        self.run_program("train", "--batch", "8", "--epochs", "2", "--ranks", "2", "--no-report", "--out", "plain")
        plain = json.loads((self.dir / "plain/metrics.jsonl").read_text().splitlines()[-1])
        self.assertEqual(plain["parameter_hash"], looked)
        self.assertNotIn("events", "".join(file.name for file in (self.dir / "plain").iterdir()))

    def test_gradient_norms_are_of_what_the_optimizer_got(self):
        """Clipped to 0.001, which they are above, all layers' norms together are that."""
        self.train("--epochs", "1", "--log-every", "1", "--clip-norm", "0.001")
        for line in self.lines():
            self.assertAlmostEqual(sum(norm**2 for norm in line["gradient_norms"].values()) ** 0.5, 0.001, delta=1e-5)

    def test_tensorboard_reads_the_same_numbers(self):
        self.train("--epochs", "2", "--log-every", "3", "--tensorboard")
        (file,) = (self.dir / "run").glob("events.out.tfevents.*")
        version, *records = events(file.read_bytes())
        self.assertEqual(version, (b"brain.Event:2", {}))
        self.assertEqual([step for step, _ in records], [line["step"] for line in self.lines()])
        for (_, scalars), line in zip(records, self.lines(), strict=True):
            of = "epoch" if "epoch" in line else "step"
            for key in ("loss", "learning_rate", "images_per_second"):
                self.assertAlmostEqual(scalars[f"{of}/{key}"] / line[key], 1, delta=1e-6)
            self.assertAlmostEqual(scalars[f"{of}/gradient_norms/fc"] / line["gradient_norms"]["fc"], 1, delta=1e-6)

    def test_events_that_are_damaged_would_be_seen(self):
        self.train("--epochs", "1", "--tensorboard")
        (file,) = (self.dir / "run").glob("events.out.tfevents.*")
        data = bytearray(file.read_bytes())
        for at in (0, 13, len(data) - 1):
            data[at] ^= 1
            with self.assertRaises((AssertionError, struct.error)):
                events(bytes(data))
            data[at] ^= 1

    # ---- runs that do not get to their end -----------------------------------------------------------------------

    def verdict(self):
        (run,) = json.loads(self.run_program("runs", ".", "--json").stdout)["runs"]
        return run["verdict"], " ".join(run["notes"])

    def test_a_run_that_was_killed_has_a_verdict(self):
        self.killed("--workers", "0")
        verdict, notes = self.verdict()
        self.assertRegex(notes, "it was killed, .* it goes on with .*--resume")
        self.assertIn("killed", [verdict["name"], *verdict["also"]])
        self.run_program("report", "run")
        self.assertIn("Where the time goes", (self.dir / "run/report.html").read_text())
        self.assertEqual(self.run_program("compare", "run", "run").stderr.count("was killed"), 1)

    def test_trouble_is_found_in_a_run_that_was_killed(self):
        child = self.start("train", "--parallel", "none", "--batch", "8", "--epochs", "1000000", "--no-report", "--out", "run",
                           env={**os.environ, "RINGGRAD_DATA_DIR": "data", "RINGGRAD_SLOW": "data:15"})
        deadline = time.time() + 60
        while time.time() < deadline and not ((self.dir / "run/metrics.jsonl").exists() and len(self.lines()) > 3):
            time.sleep(0.02)
        child.kill()
        child.communicate()
        found = self.verdict()[0]
        self.assertIn("input-bound", [found["name"], *found["also"]])  # other programs may be in its way, too

    def test_a_run_that_failed_says_why_also_in_its_first_epoch(self):
        words = ["--log-every", "1", "--lr", "1e30", "--momentum", "0", "--schedule", "constant", "--epochs", "1"]
        done = self.train(*words, code=1)
        self.assertIn("failed", self.lines()[-1])
        verdict, notes = self.verdict()
        self.assertEqual(verdict["name"], "diverging")
        self.assertIn(self.lines()[-1]["failed"], done.stderr)
        self.assertIn("the run failed", notes)
        self.assertIn("failed", self.run_program("watch", "run").stdout)
        self.train("--epochs", "1")  # such a directory is free
        self.assertNotIn("failed", (self.dir / "run/metrics.jsonl").read_text())

    def test_a_rank_that_died_is_named(self):
        child = self.start("train", "--ranks", "2", "--batch", "8", "--epochs", "1000000", "--no-report", "--out", "run")
        self.wait_for("run/summary.json")
        (rank,) = [int(pid) for pid in subprocess.run(["pgrep", "-P", str(child.pid)], capture_output=True, text=True).stdout.split()][1:]
        os.kill(rank, signal.SIGKILL)
        child.communicate(timeout=60)
        self.assertRegex(self.lines()[-1]["failed"], "rank 1|a rank died")
        self.assertIn("failed", self.run_program("watch", "run").stdout)

    def test_damaged_lines_cost_themselves_only(self):
        self.train("--epochs", "2", "--log-every", "2")
        metrics = self.dir / "run/metrics.jsonl"
        whole = metrics.read_text().splitlines()
        for bad in ("{", "3", "[]", "{}", '{"step": "x"}', '{"epoch": 1}', '{"step": 3, "gradient_norms": 7}', '{"failed": 5}', "\x1b[2J"):
            metrics.write_text("\n".join([whole[0], bad, *whole[1:]]) + "\n")
            done = self.run_program("report", "run", "--out", "page.html")
            self.assertIn("line 2 is damaged", done.stderr)
            self.run_program("watch", "run")
        metrics.unlink()
        self.assertIn("no whole epoch", self.run_program("report", "run").stderr)
        self.run_program("watch", "run")

    # ---- watch ---------------------------------------------------------------------------------------------------

    def test_watching_a_run_that_has_ended(self):
        self.train("--epochs", "2", "--log-every", "3")
        done = self.run_program("watch", "run")
        said = [line.split()[0] for line in done.stdout.splitlines()]
        self.assertEqual(said[:6], ["step=3", "step=6", "epoch=1", "step=9", "step=12", "epoch=2"])
        self.assertRegex(done.stdout, r"(?m)^ended .*\nverdict \S+\nwhy ")
        told = json.loads(self.run_program("watch", "run", "--json").stdout)
        self.assertEqual((told["state"], told["epochs"], told["step"]), ("ended", 2, 12))
        self.assertIn("nothing is not a run directory", self.run_program("watch", "nothing", code=4).stderr)

    def test_watching_in_a_pipe_ends_with_the_run(self):
        child = self.endless()
        watcher = self.start("watch", "run")
        self.assertRegex(watcher.stdout.readline(), "^(step|epoch)=")
        child.send_signal(signal.SIGINT)
        said, _ = watcher.communicate(timeout=60)
        self.assertRegex(said, r"(?m)^ended ")
        self.assertRegex(said, r"(?m)^verdict ")
        self.assertNotIn("\033", said)

    def test_watching_on_a_terminal(self):
        child = self.endless()
        ours, its = pty.openpty()
        before = termios.tcgetattr(its)
        for columns, rows in ((80, 24), (50, 16), (50, 8)):
            fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            watcher = subprocess.Popen([PROGRAM, "watch", "run"], stdin=its, stdout=its, stderr=its, cwd=self.dir,
                                       env={**os.environ, "TERM": "xterm"})
            text = b""
            while text.count(b"\033[H") < 3:
                self.assertTrue(select.select([ours], [], [], 60)[0])
                text += os.read(ours, 65536)
            watcher.send_signal(signal.SIGINT)
            while watcher.poll() is None or select.select([ours], [], [], 0.1)[0]:
                if select.select([ours], [], [], 0.1)[0]:
                    text += os.read(ours, 65536)
            self.assertEqual(watcher.returncode, 130)
            shown = text.decode()
            frame = shown.split("\033[H")[2]
            lines = re.sub(r"\033\[[0-9;?]*[A-Za-z]", "", frame).replace("\r", "").split("\n")
            self.assertLessEqual(len(lines), rows)
            self.assertLessEqual(max(len(line) for line in lines), columns, lines)
            self.assertEqual(any(0x2800 < ord(c) <= 0x28FF for c in frame), rows > 8)  # there is no room for one
            self.assertNotIn("no line yet", frame)
            # The screen and the cursor are given back, in this order, and nothing of the terminal has changed.
            self.assertEqual(shown.count("\033[?1049h"), 1)
            self.assertGreater(shown.index("\033[?25h\033[?1049l"), shown.index("\033[?1049h\033[?25l"))
            self.assertEqual(termios.tcgetattr(its), before)
        self.assertIsNone(child.poll())  # nobody has disturbed the run
        os.close(its), os.close(ours)

    def test_progress_is_told_to_terminals_that_know_it(self):
        for program, knows in (("WezTerm", True), ("Apple_Terminal", False)):
            ours, its = pty.openpty()
            fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
            child = subprocess.Popen([PROGRAM, "train", "--parallel", "none", "--batch", "8", "--epochs", "1", "--no-report", "--out", program],
                                     stdout=subprocess.DEVNULL, stderr=its, cwd=self.dir, env={
                                         **os.environ, "RINGGRAD_DATA_DIR": "data", "TERM": "xterm", "TERM_PROGRAM": program,
                                         "RINGGRAD_SLOW": "data:60", "WT_SESSION": "", "ConEmuPID": ""})
            text = all_from_terminal(ours, its, child)
            self.assertEqual(child.wait(), 0)
            told = re.findall(r"\033\]9;4;(\d);(\d+)\033\\", text.decode())
            self.assertEqual(bool(told), knows)
            if knows:
                self.assertEqual((told[0][0], told[-1]), ("1", ("0", "0")))
            bars = [re.sub(r"\033\[K|\033\]9;4;[\d;]*\033\\", "", bar) for bar in text.decode().split("\r") if "━" in bar or "╸" in bar]
            self.assertTrue(bars)
            self.assertLessEqual(max(len(bar) for bar in bars), 60)

    # ---- traces --------------------------------------------------------------------------------------------------

    def test_steps_of_a_run_are_traced(self):
        done = self.train("--epochs", "2", "--ranks", "2", "--bucket-mb", "0.05", "--trace-steps", "5:8")
        self.assertIn("trace.json", done.stderr)
        trace = json.loads((self.dir / "run/trace.json").read_text())
        self.assertEqual(check(trace), [])
        slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        for rank in (0, 1):
            names = [e["name"] for e in slices if e["pid"] == rank and e["cat"] == "step"]
            for phase in ("data", "forward", "backward", "optimizer"):  # steps 7 and 8 are of the next epoch
                self.assertEqual(names.count(phase), 4, phase)
            loaded = [e for e in slices if e["pid"] == rank and e["cat"] == "data loading"]
            self.assertGreaterEqual(len(loaded), 1)
            buckets = [e for e in slices if e["pid"] == rank and e["name"] == "bucket 1"]
            self.assertGreaterEqual(len(buckets), 1)
        root = ET.parse(self.dir / "run/timeline.svg").getroot()
        width = float(root.get("width"))
        for rect in root.iter("{http://www.w3.org/2000/svg}rect"):
            self.assertLessEqual(float(rect.get("x", 0)) + float(rect.get("width")), width + 2)

    def test_one_process_is_traced_without_arrows(self):
        self.train("--epochs", "1", "--trace-steps", "3:3")
        self.assertEqual(check(json.loads((self.dir / "run/trace.json").read_text())), [])

    def test_steps_that_cannot_be_traced(self):
        for words, said in ((["3"], "expected FIRST:LAST"), (["4:2"], "expected FIRST:LAST"), (["0:1"], "expected FIRST:LAST"),
                            (["1:2x"], "expected FIRST:LAST"), (["1:600"], "at most"), (["5:9"], "takes steps 1 to 6"),
                            (["1:2", "--shards", "2"], "sees nothing")):
            done = self.train("--epochs", "1", "--trace-steps", *words, code=2)
            self.assertIn(said, done.stderr)
        done = self.train("--epochs", "1", "--max-steps", "2", "--trace-steps", "4:5")
        self.assertIn("nothing to show", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
