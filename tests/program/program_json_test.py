#!/usr/bin/env python3
"""Tests --json and -q: program_json_test.py PATH_TO_RINGGRAD [test names].

Whatever is asked for and however it ends, stdout holds one JSON document, and where it failed the exit code is in it."""

import json, os, signal, subprocess, sys, time, unittest

from program_case import PROGRAM, DigitsCase


class Json(DigitsCase):
    def document(self, *words, code=0, **options):
        done = self.run_program("--json", *words, code=code, **options)
        said = json.loads(done.stdout)
        self.assertIsInstance(said, dict)
        if code:
            self.assertEqual(said.get("error", {"exit_code": code})["exit_code"], code, said)
        return said

    # ---- one document --------------------------------------------------------------------------------------------

    def test_every_command_writes_one_document(self):
        self.run_program("train", "--parallel", "none", "--batch", "512", "--epochs", "1", "--out", "run")
        self.document("bench", "ddp", "--model", "cnn", "--batch", "8", "--rounds", "1", "--seconds", "0.01", "--force", "--out", "bench")
        for line in ("doctor", "data list", "data check digits", "runs .", "watch run", "report run", "compare run run", "eval run",
                     "eval run --worst 2", "predict run 3", "inspect run", "export --python run", "graph lenet --batch 2",
                     "graph lenet --batch 2 --dot", "explain", "explain buckets", "explain kill", "learn list", "learn start 1",
                     "trace --model cnn --batch 8 --steps 1", "bench ddp --from bench", "bench ops --repetitions 1",
                     "bench train --model cnn --batch 4 --steps 1", "bench allreduce -b 8 -e 8 --seconds 0.01",
                     "train --resume run", "train --ranks 2 --batch 32 --max-steps 1 --out two",
                     "train --shards 2 --ranks 1 --batch 32 --max-steps 1 --out shards", "train --preset speedrun --data digits",
                     "gan --batch 256 --max-steps 1", "gan --batch 256 --max-steps 1 --ranks 2", "reinforce --episodes 2",
                     "reinforce --episodes 2 --ranks 2", "help", "--version", "help train", "train --help"):
            with self.subTest(line):
                self.assertTrue(self.document(*line.split()))
        self.assertIn("conv2d", self.document("graph", "cnn", "--batch", "2")["graph"])

    def test_every_error_is_a_document(self):
        self.short_run("run", 2, "--parallel", "none")
        for line, code, said in (("", 2, "expected one of train"), ("trian", 2, "Did you mean 'train'?"), ("train --epoch 1", 2, "Did you mean"),
                                 ("train --data nosuch", 2, "--data"), ("train --resume nosuch", 4, "nosuch"), ("eval nosuch", 4, "nosuch"),
                                 ("predict run 99999", 2, "does not exist"), ("explain nosuch", 2, "no topic"), ("learn check 99", 2, "99"),
                                 ("data check nosuch", 2, "nosuch"), ("graph nosuch", 2, "--model"), ("bench nosuch", 2, "nosuch"),
                                 ("launch -n 2 -- /nosuch/program", 3, "nosuch"), ("launch -n 2 -- false", 1, "rank"),
                                 ("lint -- false", 1, "exit code 1"), ("lint -- /nosuch/program", 3, "exit code 3"), ("help nosuch", 2, "nosuch"),
                                 ("train --ranks 2 --batch 32 --lr 1e25 --schedule constant --epochs 1", 1, "diverged"),
                                 ("train --parallel none --init nosuch.safetensors --out new", 4, "nosuch")):
            with self.subTest(line):
                self.assertIn(said, self.document(*line.split(), code=code)["error"]["message"])
        self.assertFalse(self.document("learn", "check", "1", "--file", "nosuch.cpp", code=1)["passed"])
        self.assertEqual(self.document("eval", "run", "--data-dir", "/proc/nosuch", code=8)["error"]["exit_code"], 8)

    def test_what_other_programs_say_does_not_mix_with_it(self):
        talk = ("sh", "-c", "echo '{'; echo more >&2")
        self.assertEqual(self.document("launch", "-n", "2", "--", *talk), {"exit_code": 0, "mistakes": []})
        self.assertEqual(self.document("lint", "--", *talk), {"findings": [], "processes": 0})
        inner = (str(PROGRAM), "train", "--batch", "32", "--max-steps", "1", "--out", "inner", "--json")  # has a document of its own
        self.assertEqual(self.document("launch", "-n", "2", "--", *inner)["exit_code"], 0)
        self.assertIn("test_accuracy", json.loads(self.run_program("launch", "-n", "2", "--", *inner[:-2], "other", "--json").stdout))

    def test_a_run_that_is_stopped_says_where(self):
        for name, ranks in (("one", "1"), ("two", "2")):
            child = self.start("train", "--epochs", "999", "--batch", "32", "--ranks", ranks, "--log-every", "1", "--out", name, "--json")
            self.wait_for(f"{name}/metrics.jsonl")
            child.send_signal(signal.SIGINT)
            said = json.loads(child.communicate(timeout=60)[0])
            self.assertEqual(child.returncode, 130)
            self.assertEqual(said["stopped_by_signal"], signal.SIGINT)
            self.assertIn(f"train --resume {name}", said["resume"])

    def test_a_command_that_a_signal_ends_has_a_document(self):
        self.short_run("run", 2, "--parallel", "none")
        waits = (("bench", "train", "--steps", "99999"), ("trace", "--steps", "9999999", "--model", "cnn", "--batch", "8"),
                 ("bench", "allreduce", "--seconds", "99"), ("bench", "ddp", "--model", "cnn", "--seconds", "99", "--force", "--out", "bench"),
                 ("eval", "run", "--provider", "reference"), ("launch", "-n", "2", "--", "sleep", "99"), ("lint", "--", "sleep", "99"))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            for words in waits:
                with self.subTest(words=words, signal=number):
                    child = self.start(words[0], "--json", *words[1:])
                    time.sleep(0.5)
                    child.send_signal(number)
                    said = json.loads(child.communicate(timeout=60)[0])
                    self.assertEqual((said["error"]["exit_code"], child.returncode), (128 + number, 128 + number))
                    self.assertFalse(said["error"]["message"].endswith("\n"))

    def test_gan_and_reinforce_that_are_stopped_say_where(self):
        for command, more, where in (("gan", ("--batch", "256"), "gan/metrics.jsonl"), ("reinforce", ("--episodes", "99999"), None)):
            child = self.start(command, *more, "--out", command, "--json")
            self.wait_for(where or f"{command}/config.json")
            time.sleep(0.2)
            child.send_signal(signal.SIGINT)
            said = json.loads(child.communicate(timeout=60)[0])
            self.assertEqual((child.returncode, said["stopped_by_signal"]), (130, signal.SIGINT))
            self.assertIn(f"{command} --resume {command}", said["resume"])

    def test_a_rank_that_dies_is_in_the_document(self):
        child = self.start("train", "--epochs", "999", "--batch", "32", "--ranks", "2", "--log-every", "1", "--out", "run", "--json")
        self.wait_for("run/metrics.jsonl")
        ranks = [int(pid) for pid in open(f"/proc/{child.pid}/task/{child.pid}/children").read().split()]
        os.kill(max(ranks), signal.SIGKILL)
        said = json.loads(child.communicate(timeout=60)[0])
        self.assertEqual((said["error"]["exit_code"], child.returncode), (5, 5))

    def test_a_document_that_cannot_be_written_is_an_error(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([PROGRAM, "doctor", "--json"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 8)
        self.assertIn("standard output cannot be written", done.stderr)

    # ---- silence -------------------------------------------------------------------------------------------------

    def test_quiet_training_says_nothing(self):
        for words in (("train", "--epochs", "1", "--batch", "256", "--max-steps", "12"), ("train", "--preset", "speedrun", "--data", "digits"),
                      ("gan", "--batch", "256", "--max-steps", "2"), ("reinforce", "--episodes", "3"), ("train", "--resume", "1")):
            done = self.run_program(*words, "-q")
            self.assertEqual((done.stdout, done.stderr), ("", ""), words)
        for words in (("eval", "1"), ("runs",), ("watch", "2")):
            done = self.run_program(*words, "-q")
            self.assertTrue(done.stdout)
            self.assertEqual(done.stderr, "")
            done = self.run_program(*words, "-q", "--json")
            self.assertTrue(json.loads(done.stdout))
            self.assertEqual(done.stderr, "")
        refused = self.run_program("eval", "nosuch", "-q", code=4)
        self.assertIn("nosuch", refused.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
