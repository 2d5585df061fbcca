#!/usr/bin/env python3
"""Runs commands on runs of every kind and age: program_runs_test.py PATH_TO_RINGGRAD [test names].

tests/runs/ has them as they were written once (make_runs.py); weights are made anew, as they are large."""

import json, os, pathlib, shutil, subprocess, sys, tempfile, unittest

from make_runs import KEPT, OLDER, TEXTS, give_older_checkpoint, make
from program_case import PROGRAM, ProgramCase, write_tiny

RUNS = ("finished", "unfinished", "first", "division", "speedrun", "gan", "cart", "bench")
TRAINING = RUNS[:5]
# These commands read a run, which replaces {}.
READING = ("watch {}", "report {}", "compare {} 0001-finished", "compare 0001-finished {}", "eval {}", "predict {} 3", "inspect {}",
           "export --python {}", "bench ddp --from {}")
TRAINING_ON = ("train --parallel none --init {} --max-steps 1 --batch 64 --out new", "train --resume {} --max-steps 1",
               "gan --resume {}", "reinforce --resume {}")
NO_RUN = ("graph {}", "trace --model {}")


class Runs(ProgramCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.mkdtemp(prefix="ringgrad-data-")
        write_tiny(pathlib.Path(cls.shared) / "digits", train=256, test=32)
        cls.made = pathlib.Path(tempfile.mkdtemp(prefix="ringgrad-runs-"))
        make(cls.made / "runs", cls.shared)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.shared), shutil.rmtree(cls.made)

    def setUp(self):
        """Makes runs/0001-finished and so on from today's weights and the stored text files."""
        super().setUp()
        for number, name in enumerate(RUNS, 1):
            run = self.dir / f"runs/{number:04}-{name}"
            shutil.copytree(self.made / "runs" / name, run)
            for file in TEXTS:
                if (KEPT / name / file).exists():
                    text = (KEPT / name / file).read_text().replace("/home/somebody/data", str(self.shared))
                    (run / file).write_text(text)
        (self.dir / "runs/latest").symlink_to(f"{len(RUNS):04}-{RUNS[-1]}")

    def config(self, run):
        return self.dir / f"runs/{run}/config.json"

    def change_config(self, run, change):
        config = json.loads(self.config(run).read_text())
        change(config)
        self.config(run).write_text(json.dumps(config))

    def files(self, run):
        return {path.name: path.read_bytes() for path in (self.dir / "runs" / run).iterdir()}

    def outcome(self, line, **options):
        """Returns (exit code, document, stderr) of a command with --json."""
        environment = {**os.environ, "RINGGRAD_DATA_DIR": self.shared}
        done = subprocess.run([PROGRAM, *line.split(), "--json"], capture_output=True, text=True, cwd=self.dir, env=environment,
                              timeout=120, **options)
        document = json.loads(done.stdout)  # one, whatever happens
        self.assertNotIn("json.exception", done.stdout + done.stderr)
        if "error" in document:
            self.assertEqual(document["error"]["exit_code"], done.returncode)
            self.assertTrue(document["error"]["message"])
        else:
            self.assertEqual(done.returncode, 0, (line, done.stderr))
        return done.returncode, document, done.stderr

    # ---- every run with every command ----------------------------------------------------------------------------

    def test_every_command_opens_every_run_or_says_why_not(self):
        for number, name in enumerate(RUNS, 1):
            for line in READING:
                with self.subTest(run=name, command=line):
                    wanted = (name == "bench") if "bench" in line else name in TRAINING
                    wanted |= name in ("gan", "cart") and line in ("watch {}", "inspect {}")
                    wanted |= name == "bench" and line == "report {}"
                    code, document, _ = self.outcome(line.format(number))
                    self.assertEqual(code, 0 if wanted else 4, document)
                    if not wanted:  # what it is, and what to do with it
                        self.assertIn(f"{number:04}-{name} is no run of `", document["error"]["message"])
                        self.assertRegex(document["error"]["message"], r"`.*(watch|report|bench ddp) .*`")
            for line in NO_RUN:
                code, document, _ = self.outcome(line.format(number))
                self.assertEqual(code, 2)
                self.assertIn("expected one of cnn", document["error"]["message"])

    def test_training_goes_on_from_runs_that_can(self):
        for number, name in enumerate(RUNS, 1):
            for line in TRAINING_ON:
                with self.subTest(run=name, command=line):
                    wanted = {"gan": name == "gan", "reinforce": name == "cart", "train": name in TRAINING}[line.split()[0]]
                    wanted &= name != "speedrun"  # another network, and no checkpoint
                    wanted &= name != "first" or "--init" in line  # its checkpoint lacks what is needed
                    code, document, _ = self.outcome(line.format(number))
                    self.assertEqual(code == 0, wanted, document)
                    shutil.rmtree(self.dir / "new", ignore_errors=True)

    def test_latest_is_the_newest_run_that_the_command_takes(self):
        for line, said in (("eval latest", "of train it is runs/0005-speedrun"), ("compare 1 latest", "of train it is runs/0005-speedrun"),
                           ("gan --resume latest", "of gan it is runs/0006-gan"), ("bench ddp --from latest", ""),
                           ("reinforce --resume latest", "of reinforce it is runs/0007-cart")):
            code, _, messages = self.outcome(line)
            self.assertEqual(code, 0)
            self.assertIn(said, messages)
        (self.dir / "runs/latest").unlink()
        (self.dir / "runs/latest").symlink_to("0006-gan")
        self.assertEqual(self.outcome("watch latest")[1]["command"], "gan")  # it may be going on
        self.assertIn("generator.4.weight", json.dumps(self.outcome("inspect latest")[1]))
        shutil.rmtree(self.dir / "runs")
        for line in ("eval latest", "inspect latest", "watch latest", "report 3"):
            self.assertEqual(self.outcome(line)[0], 4)

    def test_runs_lists_all_of_them(self):
        code, listed, _ = self.outcome("runs")
        self.assertEqual([pathlib.Path(run["run"]).name for run in listed["runs"]], [f"{n:04}-{name}" for n, name in enumerate(TRAINING, 1)])
        self.assertEqual([run["command"] for run in listed["others"]], ["gan", "reinforce", "bench ddp"])
        self.assertEqual(listed["unreadable"], [])
        shown = self.run_program("runs").stdout
        for words in ("0006-gan ", "generator_loss=", "mean_length=", "model cnn, batch 8, ranks 2"):
            self.assertIn(words, shown)

    # ---- a run that has ended ------------------------------------------------------------------------------------

    def test_a_finished_run_stays_as_it_is(self):
        for run, line in (("0001-finished", "train --resume 1"), ("0006-gan", "gan --resume 6"), ("0007-cart", "reinforce --resume 7")):
            before = self.files(run)
            code, document, _ = self.outcome(line)
            self.assertEqual((code, document["finished"]), (0, True))
            self.assertEqual(self.files(run), before)
        done = self.run_program("train", "--resume", "1")
        self.assertIn("has all its 2 epochs", done.stdout)
        self.assertRegex(done.stderr, r"next    .* train --resume runs/0001-finished --epochs 4\n")
        refused = self.run_program("train", "--resume", "1", "--lr", "8", code=2)
        self.assertIn("--init 1", refused.stderr)
        self.assertIn("keeps no checkpoint", self.run_program("train", "--resume", "5", code=2).stderr)

    def test_a_few_steps_do_not_replace_what_many_have_measured(self):
        self.run_program("train", "--parallel", "none", "--batch", "8", "--epochs", "1", "--max-steps", "20", "--out", "run")
        summary = lambda: json.loads((self.dir / "run/summary.json").read_text())
        before = summary()
        self.run_program("train", "--resume", "run", "--max-steps", "2")
        after = summary()
        for what in ("measured_steps", "ranks", "step_histogram", "kernels", "images_per_second"):
            self.assertEqual(after[what], before[what], what)
        self.assertEqual(after["loss_curve"][: len(before["loss_curve"])], before["loss_curve"])
        self.assertGreater(len(after["loss_curve"]), len(before["loss_curve"]))
        self.run_program("train", "--resume", "run")
        self.assertEqual(summary()["loss_curve"][: len(after["loss_curve"])], after["loss_curve"])

    # ---- other versions ------------------------------------------------------------------------------------------

    def test_a_setting_that_lacks_is_as_it_was_then(self):
        for name in OLDER:
            number = RUNS.index(name) + 1
            messages = self.run_program("eval", str(number)).stderr
            self.assertIn("config.json lacks accumulate (taken as 1), ", messages)
        self.assertIn("as older versions wrote it", self.run_program("train", "--resume", "4").stderr)
        self.assertEqual(self.files("0004-division")["model.safetensors"], self.go_on("2")["model.safetensors"])

    def go_on(self, number):
        self.run_program("train", "--resume", number)
        return self.files(f"{int(number):04}-{RUNS[int(number) - 1]}")

    def test_every_setting_may_lack_and_none_may_be_of_another_type(self):
        whole = json.loads(self.config("0002-unfinished").read_text())
        groups = [(None, key) for key in whole] + [("recipe", key) for key in whole["recipe"]]
        groups += [("division", key) for key in whole["division"]]
        needed = ("recipe", "model", "data")
        for group, key in groups:
            if group == "recipe" and key in ("optimizer", "schedule", "momentum", "weight_decay", "dtype", "amp", "conv", "provider", "nesterov"):
                continue  # as the others
            for lacks, change in ((True, lambda place: place.pop(key)), (False, lambda place: place.update({key: [None]}))):
                with self.subTest(group=group, key=key):
                    self.config("0002-unfinished").write_text(json.dumps(whole))
                    self.change_config("0002-unfinished", lambda config: change(config[group] if group else config))
                    for line in ("eval 2 --data-dir " + self.shared, "watch 2"):
                        code, document, messages = self.outcome(line)
                        if code != 0:
                            self.assertEqual(code, 4)
                            self.assertIn(key.replace("_", "-"), document["error"]["message"].replace("_", "-"))
                            self.assertIn("config.json", document["error"]["message"])
                        if key in needed:
                            self.assertEqual(code, 4)
                        elif lacks:
                            self.assertEqual(code, 0, document)

    def test_a_setting_of_a_newer_version_is_named(self):
        for run, line, group in (("0002-unfinished", "train --resume 2", "recipe"), ("0002-unfinished", "train --resume 2", "division"),
                                 ("0002-unfinished", "train --resume 2", None), ("0006-gan", "gan --resume 6", "gan"),
                                 ("0007-cart", "reinforce --resume 7", "reinforce")):
            with self.subTest(group=group):
                before = self.config(run).read_text()
                self.change_config(run, lambda config: (config[group] if group else config).update(magic=7))
                files = self.files(run)
                code, document, _ = self.outcome(line)
                self.assertEqual(code, 4)
                self.assertIn("magic", document["error"]["message"])
                self.assertEqual(self.files(run), files)
                if run == "0002-unfinished":
                    self.assertIn("magic", self.run_program("eval", "2").stderr)
                self.config(run).write_text(before)

    def test_a_file_of_a_run_that_is_none_is_named_and_nobody_waits_for_it(self):
        run = self.dir / "runs/0002-unfinished"
        for name in ("config.json", "metrics.jsonl", "summary.json"):
            text = (run / name).read_text()
            for make in (os.mkdir, os.mkfifo):
                (run / name).unlink()
                make(run / name)
                for line in ("eval 2", "watch 2", "report 2", "compare 1 2", "train --resume 2 --max-steps 1", "export --python 2", "runs"):
                    with self.subTest(file=name, command=line, make=make.__name__):
                        code, document, messages = self.outcome(line)
                        said = json.dumps(document) + messages
                        if name == "config.json" and line != "runs":
                            self.assertIn(code, (4, 8))
                        if code or name == "config.json":
                            self.assertIn(f"{name}: is not a regular file", said)
                os.rmdir(run / name) if make == os.mkdir else (run / name).unlink()
                (run / name).write_text(text)
        os.mkfifo(self.dir / "pipe")
        os.mkfifo(self.dir / "pipe.safetensors")
        (self.dir / "told").mkdir()
        os.mkfifo(self.dir / "told/0.json")
        for line in ("inspect pipe", "inspect pipe.safetensors", "bench ddp --from pipe", "learn check 1 --file pipe", "lint --from told",
                     "eval pipe.safetensors", "predict 1 pipe", "train --data pipe"):
            self.assertNotEqual(self.outcome(line)[0], 0, line)
        self.config("0002-unfinished").write_text("[1]")
        for line in ("watch 2", "report 2", "compare 1 2", "eval 2"):
            self.assertIn("it lacks the group 'recipe'", self.outcome(line)[1]["error"]["message"])

    def test_a_run_that_there_is_not_is_named_so(self):
        for name in ("99", "nosuch", "0099-digits-cnn", "runs/0099-x"):
            self.assertIn(f"there is no {name}", self.outcome(f"eval {name}")[1]["error"]["message"])  # it takes files, too
            for line in ("report {}", "watch {}", "train --resume {}", "gan --resume {}", "compare 1 {}"):
                message = self.outcome(line.format(name))[1]["error"]["message"]
                self.assertRegex(message, f"there is no such folder, and no run .* in runs/; `.* runs` lists them", (line, name))
        (self.dir / "folder").mkdir()
        self.assertIn("folder is not a run directory: it has no config.json", self.outcome("report folder")[1]["error"]["message"])

    def test_the_number_of_an_image_that_there_is_not(self):
        for number in ("32", "-1", "99999999999", "99999999999999999999999", "-99999999999999999999999"):
            code, document, _ = self.outcome(f"predict 1 {number}")
            self.assertEqual((code, document["error"]["message"]), (2, f"test image {number} of digits does not exist, expected 0 to 31"))

    def test_a_folder_of_data_that_is_closed(self):
        if os.getuid() != 0:
            self.skipTest("needs root, to be somebody else")
        home = self.dir / "home"
        shutil.copytree(self.shared, home / "data")
        home.chmod(0o700)
        self.change_config("0002-unfinished", lambda config: config.update(data_dir=str(home / "data")))
        subprocess.run(["chmod", "-R", "a+rwX", self.dir / "runs", self.shared], check=True)
        self.dir.chmod(0o777)
        somebody = {"preexec_fn": lambda: os.setuid(65534)}
        for line in ("eval 2", "predict 2 3", "train --resume 2 --max-steps 1"):
            code, document, _ = self.outcome(line, **somebody)
            self.assertIn(code, (4, 8))
            self.assertIn(str(home / "data"), document["error"]["message"])
            self.assertIn("--data-dir", document["error"]["message"])
            self.assertEqual(self.outcome(f"{line} --data-dir {self.shared}", **somebody)[0], 0)
        for line in ("report 2 --out page.html", "watch 2", "inspect 2", "compare 1 2"):
            self.assertEqual(self.outcome(line, **somebody)[0], 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
