#!/usr/bin/env python3
"""Paths, numbers and locales as a user may give them: program_paths_test.py PATH_TO_RINGGRAD [test names].

Where output goes, what an empty value or an impossible number is, and which run `latest` is.
"""

import json, os, re, stat, subprocess, sys, threading, unittest

from program_case import PROGRAM, DigitsCase, ProgramCase

SPEAKS_LOCALE = PROGRAM.parent / "tests/libspeaks_locale.so"
LOCALES = ("de_DE.UTF-8", "en_US.UTF-8", "tr_TR.UTF-8", "hi_IN.UTF-8")
# --name TYPE, and a positional word without dashes, as `--help` lists them
OPTION = re.compile(r"^ +(?:-\w,)?(--?[a-z-]+)(?:,--?[a-z-]+)* (TEXT|INT|UINT|FLOAT)\b(.*)", re.M)


def commands():
    """Returns the words of every command."""
    def below(words):
        shown = subprocess.run([PROGRAM, *words, "--help"], capture_output=True, text=True).stdout
        names = re.findall(r"^  ([a-z]+) ", shown.split("Subcommands:")[1].split("\n\n")[0], re.M) if "Subcommands:" in shown else []
        return [deeper for name in names for deeper in below([*words, name])] or [(words, shown)]
    return below([])


class Values(ProgramCase):
    def test_no_option_takes_an_empty_value(self):
        tried = 0
        for words, shown in commands():
            for option, _, _ in OPTION.findall(shown):
                for value in ([option, ""], [option + "="]):
                    done = subprocess.run([PROGRAM, *words, *value], capture_output=True, text=True, cwd=self.dir)
                    self.assertEqual(done.returncode, 2, (words, value, done.stderr))
                done = subprocess.run([PROGRAM, *words, option, ""], capture_output=True, text=True, cwd=self.dir)
                self.assertRegex(done.stderr, f"{option}\\b.*: is empty", (words, option))
                tried += 1
        self.assertGreater(tried, 100)
        self.assertEqual(list(self.dir.iterdir()), [])
        self.assertIn("runs: is empty", self.run_program("report", "", code=2).stderr)
        self.assertIn("image: is empty", self.run_program("predict", "latest", "", code=2).stderr)
        self.assertEqual(self.run_program("launch", "-n", "1", "--", "echo", "a", "", "b").stdout, "a  b\n")

    def test_numbers_are_what_they_say_or_refused(self):
        wrong = {"INT": ("99999999999999999999", "1.5", "5x", " 5", "0x10", "1e3"), "FLOAT": ("nan", "inf", "-inf", "1e400", "0,5", "1x"),
                 "UINT": ("18446744073709551616", "-1", "1.5", "0x10", "nan")}
        tried = 0
        for words, shown in commands():
            for option, kind, more in OPTION.findall(shown):
                if kind == "TEXT" or "SIZE" in more or more.endswith("..."):  # lists
                    continue
                for value in wrong[kind]:
                    done = subprocess.run([PROGRAM, *words, f"{option}={value}"], capture_output=True, text=True, cwd=self.dir)
                    self.assertEqual(done.returncode, 2, (words, option, value, done.stderr))
                    self.assertIn(option, done.stderr)
                    tried += 1
        self.assertGreater(tried, 150)
        self.assertEqual(list(self.dir.iterdir()), [])
        self.assertIn("expected a whole number from 0 to 2^64 - 1", self.run_program("train", "--seed", "18446744073709551616", code=2).stderr)
        self.assertIn("expected a size such as 64K", self.run_program("fit", "--memory=-1", code=2).stderr)
        for steps in ("1:2:3", "5", ":", "1:", "-1:3", "1:99999999999999999999", " 1:2", "1:2x"):
            self.assertIn("expected FIRST:LAST", self.run_program("train", "--trace-steps", steps, "--max-steps", "1", "--ranks", "1", code=2).stderr)


class Mistakes(ProgramCase):
    def said(self, line):
        return self.run_program(*line.split(), code=2).stderr.splitlines()[0]

    def test_what_is_wrong_is_said_with_the_command_and_what_was_expected(self):
        for line, words in (
            ("train extra", r"train: not expected: extra; `.* help train` says what it takes"),
            ("bench train extra", r"bench train: not expected: extra; `.* help bench train` says what it takes"),
            ("bench train --ranks 2", r"bench train: no option '--ranks'"),
            ("train -epochs 2", r"train: no option '-epochs'. Did you mean '--epochs'\?"),
            ("-V", r"no option '-V'"),
            ("--jsn doctor", r"no option '--jsn'. Did you mean '--json'\?"),
            ("train --epochs", r"--epochs needs a value"),
            ("train --amp --provider reference", r"train: --amp needs a value, and --provider is an option"),
            ("train --lr -inf", r"--lr: is '-inf', expected a number such as 0.5"),
            ("train --ranks 0", r"--ranks is 0, expected 1 to 4096"),
            ("train --max-steps -1", r"--max-steps is -1, expected .*"),
            ("train --preset fast", r"--preset is 'fast', expected speedrun"),
            ("train --checksums maybe", r"--checksums is 'maybe', expected auto,on,off"),
            ("report", r"report: runs is required: runs of train, or one of bench ddp"),
            ("predict 1", r"predict: image is required: pictures, .*"),
            ("launch", r"launch: --nproc-per-node is required: ranks on this machine"),
            ("eval run --out x.png", r"--out requires --worst"),
            ("bench ddp --nodes 2", r"--nodes requires --predict"),
            ("bench ddp --network-us 2", r"--network-us requires --predict"),
        ):
            with self.subTest(line):
                self.assertRegex(self.said(line), f"^ringgrad: {words}$")

    def test_options_that_contradict_each_other_are_found_before_anything_is_done(self):
        for line in ("train --device cuda --provider reference", "train --provider reference --device cuda:1", "eval run --device cuda --provider reference",
                     "bench train --device cuda --provider reference"):
            self.assertIn("expected auto, native, vendor or fastest, or --device cpu", self.said(line))
        self.assertIn("expected FIRST:LAST, such as 20:22", self.said("train --trace-steps a:b"))
        self.assertIn("60 steps, expected at most 50", self.said("train --trace-steps 1:60"))
        self.assertEqual(list(self.dir.iterdir()), [])


class Paths(DigitsCase):
    def train(self, *words, **options):
        return self.run_program("train", "--batch", "32", "--max-steps", "1", "--ranks", "1", *words, **options)

    def test_output_goes_where_it_is_told_to_and_replaces_no_device(self):
        self.train("--out", "run")
        page = ["report", "run", "--out"]
        read = []
        os.mkfifo(self.dir / "pipe")
        self.assertIn("pipe is read by nobody", self.run_program(*page, "pipe", code=8).stderr)
        reader = threading.Thread(target=lambda: read.append((self.dir / "pipe").read_text()))
        reader.start()
        while subprocess.run([PROGRAM, *page, "pipe"], cwd=self.dir, capture_output=True).returncode != 0:
            pass  # the reader has not come yet
        reader.join()
        self.assertTrue(read[0].startswith("<!DOCTYPE html>"), read[0][:99])
        self.assertTrue(stat.S_ISFIFO(os.lstat(self.dir / "pipe").st_mode))

        (self.dir / "site").mkdir()
        os.symlink("site/page.html", self.dir / "link")
        self.run_program(*page, "link")
        self.assertTrue((self.dir / "link").is_symlink())
        self.assertIn("DOCTYPE", (self.dir / "site/page.html").read_text())
        self.assertIn("DOCTYPE", self.run_program(*page, "/dev/stdout").stdout)
        self.assertIn("site cannot be written: Is a directory", self.run_program(*page, "site", code=8).stderr)
        refused = self.run_program(*page, "nowhere/x.html", code=8).stderr
        self.assertIn("No such file", refused)
        self.assertNotIn("what was there before is intact", refused)  # nothing was there
        for name in ("a b.html", "it's \"q\".html", "two\nlines.html", "-", "--out"):
            self.run_program("report", "run", "--out=" + name)
            self.assertIn("DOCTYPE", (self.dir / name).read_text())
        for words in (["explain", "ring", "--html"], ["trace", "--model", "cnn", "--batch", "8", "--steps", "1", "--svg"],
                      ["trace", "--model", "cnn", "--batch", "8", "--steps", "1", "--perfetto"],
                      ["eval", "run", "--worst", "1", "--out"], ["inspect", "run/model.safetensors", "--npy", "fc.bias", "--output"]):
            if words[0] == "inspect":
                shown = json.loads(self.run_program("inspect", "run/model.safetensors", "--json").stdout)
                words[3] = shown["tensors"][0]["name"]
            self.assertIn("is read by nobody", self.run_program(*words, "pipe", code=8).stderr)
            self.assertIn("Is a directory", self.run_program(*words, "site", code=8).stderr)
            self.assertTrue(stat.S_ISFIFO(os.lstat(self.dir / "pipe").st_mode))
        try:
            os.mknod(self.dir / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
            os.mknod(self.dir / "full", 0o666 | stat.S_IFCHR, os.makedev(1, 7))
            (self.dir / "null").write_text("")
        except OSError:
            return  # for root alone, where devices may be made
        self.run_program(*page, "null")
        self.assertIn("No space left", self.run_program(*page, "full", code=8).stderr)
        for device in ("null", "full"):
            self.assertTrue(stat.S_ISCHR(os.lstat(self.dir / device).st_mode))

    def test_latest_is_the_run_before_the_one_that_begins(self):
        self.train("--seed", "3")
        first = os.readlink(self.dir / "runs/latest")
        for ranks in ("1", "2"):
            before = os.path.realpath(self.dir / "runs/latest")
            self.run_program("train", "--batch", "32", "--max-steps", "1", "--ranks", ranks, "--init", "latest", "--seed", "4")
            config = json.loads((self.dir / "runs/latest/config.json").read_text())
            self.assertEqual(config["init"], before)
        self.train("--init", "1", "--out", "again")
        self.assertEqual(json.loads((self.dir / "again/config.json").read_text())["init"], str(self.dir.resolve() / "runs" / first))
        self.train("--init", "nowhere", code=4)
        self.assertEqual(len(list(self.dir.glob("runs/0*"))), 3)

    def test_every_locale_gives_the_same_run(self):
        def trained(name, env):
            words = ["--log-every", "1", "--lr", "0.05", "--seed", "12345678", "--ranks", "2", "--tensorboard"]
            done = subprocess.run([PROGRAM, "train", "--batch", "32", "--max-steps", "2", "--out", name, *words], capture_output=True, text=True,
                                  cwd=self.dir, env={**os.environ, "RINGGRAD_DATA_DIR": self.shared, **env}, timeout=120)
            if done.returncode == 77:
                return None
            self.assertEqual(done.returncode, 0, done.stderr)
            config = json.loads((self.dir / name / "config.json").read_text())
            lines = [json.loads(line) for line in (self.dir / name / "metrics.jsonl").read_text().splitlines()]
            page = self.run_program("report", name, env=env)
            self.assertIn("DOCTYPE", (self.dir / name / "report.html").read_text())
            return config, [line.get("loss") for line in lines], (self.dir / name / "model.safetensors").read_bytes(), page.returncode

        classic, spoken = trained("classic", {}), []
        for locale in LOCALES:
            found = trained(locale, {"LD_PRELOAD": str(SPEAKS_LOCALE), "SPEAKS_LOCALE": locale, "LC_ALL": locale})
            if found:
                self.assertEqual(found, classic)
                spoken.append(locale)
        if not spoken:
            self.skipTest("none of the locales is installed")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
