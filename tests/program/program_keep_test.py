#!/usr/bin/env python3
"""Training on and stopping well: program_keep_test.py PATH_TO_RINGGRAD [test names].

Runs that are extended, the best epoch by images that are held out, patience, and the list of runs."""

import json, os, pty, re, shutil, signal, subprocess, sys, unittest

from program_case import PROGRAM, ProgramCase, all_from_terminal, sha256, write_idx, write_tiny

TINY = ["train", "--parallel", "none", "--batch", "8"]


class Keep(ProgramCase):
    def setUp(self):
        super().setUp()
        write_tiny(self.dir / "data/digits")

    def config(self, run):
        return json.loads((self.dir / run / "config.json").read_text())

    def lines(self, run):
        return [json.loads(line) for line in (self.dir / run / "metrics.jsonl").read_text().splitlines()]

    # ---- more epochs ---------------------------------------------------------------------------------------------

    def test_an_extended_run_is_the_longer_one(self):
        """With a rate that no number of epochs changes, to the bit; also from its middle, and on ranks."""
        for ranks in (["--parallel", "none"], ["--ranks", "2"]):
            with self.subTest(ranks=ranks):
                constant = ["train", *ranks, "--batch", "8", "--schedule", "constant"]
                self.run_program(*constant, "--epochs", "4", "--out", "whole")
                self.run_program(*constant, "--epochs", "2", "--out", "ended")
                self.run_program(*constant, "--epochs", "2", "--max-steps", "9", "--out", "middle")
                for run in ("ended", "middle"):
                    os.utime(self.dir / run / "config.json", (1e9, 1e9))
                    self.run_program("train", "--resume", run, "--epochs", "3")
                    self.assertEqual((self.dir / run / "config.json").stat().st_mtime, 1e9)  # when it began
                    self.run_program("train", "--resume", run, "--epochs", "4", "--max-steps", "2")
                    self.run_program("train", "--resume", run)
                    self.assertEqual(sha256(self.dir / run / "model.safetensors"), sha256(self.dir / "whole/model.safetensors"))
                    self.assertEqual(self.config(run)["recipe"], self.config("whole")["recipe"])
                self.assertEqual(self.config("ended")["extended"], "2 to 3 epochs after epoch 2, 3 to 4 epochs after epoch 3")
                for run in ("whole", "ended", "middle"):
                    shutil.rmtree(self.dir / run)

    def test_the_rate_is_that_of_the_longer_run_from_there_on(self):
        for schedule in ("onecycle", "cosine", "step"):
            with self.subTest(schedule=schedule):
                words = [*TINY, "--schedule", schedule]
                self.run_program(*words, "--epochs", "6", "--out", "whole")
                self.run_program(*words, "--epochs", "3", "--out", "run")
                self.run_program("train", "--resume", "run", "--epochs", "6")
                rates = {run: [line["learning_rate"] for line in self.lines(run)] for run in ("whole", "run")}
                self.assertEqual(rates["run"][3:], rates["whole"][3:])
                self.assertNotEqual(rates["run"][:3], rates["whole"][:3])
                self.assertNotIn("learning rate", self.run_program("report", "run").stdout)
                shutil.rmtree(self.dir / "whole"), shutil.rmtree(self.dir / "run")

    def test_what_more_epochs_cannot_be(self):
        self.run_program(*TINY, "--epochs", "2", "--out", "run")
        before = {path.name: path.read_bytes() for path in (self.dir / "run").iterdir()}
        self.assertIn("can only add", self.run_program("train", "--resume", "run", "--epochs", "1", code=2).stderr)
        self.run_program("train", "--resume", "run", "--epochs", "1000001", code=2)
        self.assertIn("leave those options out", self.run_program("train", "--resume", "run", "--epochs", "4", "--lr", "1", code=2).stderr)
        done = self.run_program("train", "--resume", "run", "--epochs", "2")
        self.assertIn("has all its 2 epochs", done.stdout)
        self.assertIn("--resume", done.stderr)
        self.assertIn("--epochs 4", done.stderr)
        self.assertEqual({path.name: path.read_bytes() for path in (self.dir / "run").iterdir()}, before)

    # ---- the best epoch ------------------------------------------------------------------------------------------

    def best_of(self, run):
        """By the lines alone: the highest accuracy, then the lowest loss, then the first."""
        return max(self.lines(run), key=lambda line: (line["validation_accuracy"], -line["validation_loss"], -line["epoch"]))

    def test_the_best_epoch_is_kept(self):
        words = ["--batch", "8", "--lr", "0.3", "--schedule", "constant", "--validation", "0.25"]
        for ranks in (["--parallel", "none"], ["--ranks", "2"], ["--parallel", "dp"]):
            with self.subTest(ranks=ranks):
                self.run_program("train", *ranks, *words, "--epochs", "6", "--keep", "best", "--out", "best")
                self.run_program("train", *ranks, *words, "--epochs", "6", "--keep", "both", "--out", "both")
                self.run_program("train", *ranks, *words, "--epochs", "6", "--out", "last")
                best = self.best_of("best")
                self.assertEqual(self.lines("both")[-1]["loss"], self.lines("best")[-1]["loss"])
                self.assertEqual(sha256(self.dir / "both/model.safetensors"), sha256(self.dir / "last/model.safetensors"))
                self.assertEqual(sha256(self.dir / "both/best.safetensors"), sha256(self.dir / "best/model.safetensors"))
                tested = json.loads(self.run_program("eval", "best", "--json").stdout)
                self.assertAlmostEqual(tested["accuracy"], best["test_accuracy"], places=6)
                self.assertAlmostEqual(tested["loss"], best["test_loss"], delta=1e-4 * best["test_loss"])
                # The weights are those of a run that ends there.
                self.run_program("train", *ranks, *words, "--epochs", str(best["epoch"]), "--out", "short")
                self.assertEqual(sha256(self.dir / "short/model.safetensors"), sha256(self.dir / "best/model.safetensors"))
                for run in ("best", "both", "last", "short"):
                    shutil.rmtree(self.dir / run)

    def test_who_reads_a_run_tells_of_the_epoch_that_is_kept(self):
        self.run_program(*TINY, "--epochs", "3", "--keep", "best", "--out", "run")
        lines = self.lines("run")
        lines[1].update(validation_accuracy=1, test_accuracy=0.5, test_loss=1.25)
        (self.dir / "run/metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        told = lambda *words: json.loads(self.run_program(*words, "--json").stdout)
        self.assertEqual(told("watch", "run")["test_accuracy"], 0.5)
        self.assertEqual(told("compare", "run", "run")["test_accuracy"], [0.5, 0.5])
        self.assertEqual(told("runs", ".")["runs"][0]["test_accuracy"], 0.5)
        self.assertIn("50.00 % test accuracy", self.run_program("train", "--resume", "run").stdout)
        self.run_program("report", "run", "--out", "page.html")
        head = self.read_page("page.html").split("</table>")[0]
        self.assertIn("50.00 %", head)
        self.assertIn("1.2500", head)

    def test_the_test_set_chooses_nothing(self):
        words = [*TINY, "--epochs", "5", "--lr", "0.3", "--keep", "best"]
        first = json.loads(self.run_program(*words, "--out", "a", "--json").stdout)
        write_idx(self.dir / "data/digits/t10k-labels-idx1-ubyte", 12, element=lambda i: (i + 3) % 10)
        second = json.loads(self.run_program(*words, "--out", "b", "--json").stdout)
        self.assertEqual(first["best_epoch"], second["best_epoch"])
        self.assertEqual(sha256(self.dir / "a/model.safetensors"), sha256(self.dir / "b/model.safetensors"))
        self.assertNotEqual(first["test_loss"], second["test_loss"])

    def test_patience_ends_a_run_and_a_resumption_knows_the_best(self):
        for ranks in (["--parallel", "none"], ["--ranks", "2"]):
            with self.subTest(ranks=ranks):
                words = ["train", *ranks, "--batch", "8", "--epochs", "60", "--schedule", "constant", "--lr", "0.2", "--keep", "best", "--patience", "3"]
                done = json.loads(self.run_program(*words, "--out", "whole", "--json").stdout)
                self.assertLess(done["epochs"], 60)
                self.assertEqual(done["epochs"], done["best_epoch"] + 3)
                self.assertEqual(done["best_epoch"], self.best_of("whole")["epoch"])
                self.run_program(*words, "--out", "part", "--max-steps", str(6 * done["best_epoch"] + 7))
                again = json.loads(self.run_program("train", "--resume", "part", "--json").stdout)
                self.assertEqual((again["epochs"], again["best_epoch"]), (done["epochs"], done["best_epoch"]))
                self.assertEqual(sha256(self.dir / "part/model.safetensors"), sha256(self.dir / "whole/model.safetensors"))
                ended = json.loads(self.run_program("train", "--resume", "whole", "--json").stdout)
                self.assertEqual(ended["epochs"], done["epochs"])
                shutil.rmtree(self.dir / "whole"), shutil.rmtree(self.dir / "part")

    def test_what_is_held_out_is_not_trained_on(self):
        done = self.run_program(*TINY, "--epochs", "1", "--validation", "0.25", "--out", "run")
        self.assertIn("12 of the training images are held out", done.stderr)
        self.assertEqual(self.lines("run")[-1]["step"], (48 - 12 + 7) // 8)
        for words in (["--validation", "1"], ["--validation", "-0.1"], ["--keep", "first"], ["--patience", "-1"], ["--keep", "best", "--validation", "0"],
                      ["--validation", "0.001"], ["--patience", "2", "--elastic", "1:2", "--parallel", "ddp"]):
            with self.subTest(words=words):
                self.run_program("train", "--batch", "8", *words, code=2)

    # ---- the list ------------------------------------------------------------------------------------------------

    def test_runs_has_dates_all_kinds_and_only_what_differs(self):
        for lr in ("0.05", "0.05", "0.05", "0.01"):
            self.run_program(*TINY, "--epochs", "1", "--lr", lr)
        self.run_program("gan", "--batch", "8", "--epochs", "1")
        self.run_program("reinforce", "--episodes", "2")
        os.utime(self.dir / "runs/0001-digits-cnn/config.json", (0, 1_000_000_000))
        done = self.run_program("runs")
        self.assertIn("2001-09-09", done.stdout.splitlines()[1])
        self.assertRegex(done.stdout.splitlines()[2], r"[A-Z][a-z]{2} \d\d \d\d:\d\d")
        self.assertEqual(re.findall(r"^  (.*)$", done.stdout, re.M), ["lr 0.01"])
        self.assertIn(" gan ", done.stdout)
        self.assertIn(" reinforce ", done.stdout)
        document = json.loads(self.run_program("runs", "--json").stdout)
        self.assertRegex(document["runs"][0]["begun"], r"^2001-09-09T\d\d:\d\d:\d\d$")
        self.assertEqual([run["command"] for run in document["others"]], ["gan", "reinforce"])

    def test_runs_rm(self):
        for _ in range(3):
            self.run_program(*TINY, "--epochs", "1", "--tensorboard", "--trace-steps", "4:5")
        self.run_program("gan", "--batch", "8", "--epochs", "1")
        self.run_program("eval", "2", "--worst", "1")
        (self.dir / "runs/0001-digits-cnn/notes.txt").write_text("mine")
        (self.dir / "project").mkdir()
        (self.dir / "project/config.json").write_text('{"compilerOptions": {}}')
        (self.dir / "file").write_text("mine")
        for name in ("9", "project", ".", "/", "file", "runs", "nowhere"):
            with self.subTest(name=name):
                self.run_program("runs", "rm", "2", name, code=4)
                self.assertTrue((self.dir / "runs/0002-digits-cnn/config.json").exists())
        self.assertTrue((self.dir / "project/config.json").exists())
        self.assertIn("but for 1 file", self.run_program("runs", "rm", "1", "0004-digits-gan").stdout)
        self.assertEqual(os.listdir(self.dir / "runs/0001-digits-cnn"), ["notes.txt"])
        self.assertFalse((self.dir / "runs/0004-digits-gan").exists())
        self.assertEqual(os.readlink(self.dir / "runs/latest"), "0003-digits-cnn")
        self.run_program("runs", "rm", "runs/0002-digits-cnn", "latest")
        self.assertEqual(os.listdir(self.dir / "runs"), ["0001-digits-cnn"])
        child = self.start(*TINY, "--epochs", "5000", "--out", "busy")
        self.wait_for("busy/checkpoint.safetensors")
        self.assertIn("trains in", self.run_program("runs", "rm", "busy", code=2).stderr)
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
        killed = self.start(*TINY, "--epochs", "5000", "--out", "killed")
        self.wait_for("killed/config.json")
        killed.kill()
        killed.communicate()
        for measured in (self.dir / "killed").iterdir():
            if measured.name != "config.json":
                measured.unlink()
        self.run_program("runs", "rm", "killed")
        self.assertFalse((self.dir / "killed").exists())

    def test_the_bar_says_what_the_whole_run_has_left(self):
        slow = ["--model", "resnet110"]  # an epoch takes longer than the bar waits
        text = self.on_a_terminal_of_errors(*TINY, *slow, "--epochs", "300", "--max-steps", "30")
        self.assertRegex(text, r"/6  loss \S+  \S+ \S+ left, .* of all")

    def on_a_terminal_of_errors(self, *words):
        ours, its = pty.openpty()
        child = subprocess.Popen([PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=its, cwd=self.dir,
                                 env={**os.environ, "RINGGRAD_DATA_DIR": self.shared, "TERM": "xterm"})
        text = all_from_terminal(ours, its, child)
        self.assertEqual(child.wait(timeout=60), 0, text)
        return text.decode()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
