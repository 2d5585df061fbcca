#!/usr/bin/env python3
"""Drives `ringgrad train --recompute`, `--zero` and `ringgrad fit`: program_memory_test.py PATH_TO_RINGGRAD [test names]."""

import json, os, pathlib, re, resource, signal, sys, time, unittest

from program_case import DigitsCase, sha256, write_tiny


class Memory(DigitsCase):
    def setUp(self):
        super().setUp()
        write_tiny(self.dir / "tiny/mnist")

    def train(self, out, steps, *words, code=0):
        options = ["--data", "mnist", "--data-dir", "tiny", "--model", "resnet20", "--batch", "8", "--epochs", "2"]
        if "--resume" in words:
            options = []
        else:
            options += ["--optimizer", "adamw", "--lr", "0.001", "--out", out]
        return self.run_program("train", *options, "--max-steps", str(steps), *words, code=code)

    def bits(self, out):
        return sha256(self.dir / out / "model.safetensors")

    def test_all_ways_end_with_the_bits_of_the_plain_run(self):
        alone = ["--parallel", "none"]
        self.train("plain", 3, *alone)
        self.train("recompute", 3, *alone, "--recompute", "blocks")
        self.train("auto", 3, *alone, "--recompute", "auto:500")
        self.assertEqual({self.bits("recompute"), self.bits("auto")}, {self.bits("plain")})
        two = ["--ranks", "2"]
        self.train("ranks", 3, *two)
        self.train("zero", 3, *two, "--zero", "1")
        self.train("zero_2", 3, *two, "--zero", "2")
        self.train("both", 3, *two, "--zero", "1", "--recompute", "blocks", "--transport", "tcp")
        self.assertEqual({self.bits("zero"), self.bits("zero_2"), self.bits("both")}, {self.bits("ranks")})
        self.train("shards", 3, "--parallel", "none", "--shards", "4")
        self.train("zero_shards", 3, *two, "--shards", "4", "--zero", "2", "--recompute", "blocks")
        self.assertEqual(self.bits("zero_shards"), self.bits("shards"))

    def test_divided_float32_copies_have_the_bits_of_whole_ones(self):
        words = ["--ranks", "2", "--dtype", "bf16", "--amp", "O2"]
        self.train("copies", 3, *words)
        for zero in ("1", "2"):
            self.train("copies_" + zero, 3, *words, "--zero", zero)
            self.assertEqual(self.bits("copies_" + zero), self.bits("copies"))
        self.train("copies_part", 2, *words, "--zero", "2")
        self.train("copies_part", 1, "--resume", "copies_part", "--ranks", "2")
        self.assertEqual(self.bits("copies_part"), self.bits("copies"))

    def test_a_divided_state_goes_on_bit_for_bit_on_any_number_of_ranks(self):
        words = ["--shards", "4", "--ranks", "2", "--zero", "2"]
        self.train("whole", 4, *words)
        self.train("parts", 2, *words)
        self.train("parts", 1, "--resume", "parts", "--ranks", "3")
        self.train("parts", 1, "--resume", "parts", "--ranks", "2")
        self.assertEqual(self.bits("parts"), self.bits("whole"))

    def test_a_resumed_run_may_leave_zero_out(self):
        words = ["--ranks", "2", "--zero", "2"]
        self.train("whole", 3, *words)
        self.train("part", 1, *words)
        first = self.train("part", 1, "--resume", "part").stderr  # as before
        self.assertNotIn("from here on", first)
        second = self.train("part", 1, "--resume", "part", "--zero", "0").stderr
        self.assertNotIn("--zero", second.split("from here on")[1].splitlines()[0])
        self.assertEqual(self.bits("part"), self.bits("whole"))
        self.assertIn("--shards", self.train("part", 1, "--resume", "part", "--shards", "0", code=2).stderr)

    def test_killed_stopped_and_slowed_ranks_of_divided_steps_change_no_bit(self):
        words = ["--data", "mnist", "--data-dir", "tiny", "--model", "cnn", "--batch", "8", "--epochs", "20", "--optimizer", "adamw",
                 "--lr", "0.001", "--shards", "4", "--no-report"]
        self.run_program("train", *words, "--parallel", "none", "--out", "whole")

        def disturbed(out, zero, by, code):
            env = {**os.environ, "RINGGRAD_DATA_DIR": self.shared, "RINGGRAD_TIMEOUT": "2"}
            child = self.start("train", *words, "--ranks", "3", "--zero", zero, "--save-every", "3", "--out", out, env=env)
            self.wait_for(f"{out}/checkpoint.safetensors")
            ranks = pathlib.Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
            by(int(ranks[1]))
            said = child.communicate(timeout=100)[1]
            self.assertEqual(child.returncode, code, said)
            self.assertTrue(code == 0 or "rank 1" in said, said)

        def slow(pid):
            for _ in range(5):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(0.1)
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.02)

        for zero in ("1", "2"):
            disturbed("slowed" + zero, zero, slow, 0)
            self.assertEqual(self.bits("slowed" + zero), self.bits("whole"))
            for name, number, code in (("killed", signal.SIGKILL, 5), ("stopped", signal.SIGSTOP, 6)):
                disturbed(name + zero, zero, lambda pid, number=number: os.kill(pid, number), code)
                self.run_program("train", "--resume", name + zero, "--ranks", "2")
                self.assertEqual(self.bits(name + zero), self.bits("whole"))

    def test_what_cannot_be_is_refused(self):
        for words, what in ((["--zero", "3"], "--zero is 3"),
                            (["--zero", "1", "--parallel", "none"], "--zero is for ranks"),
                            (["--zero", "1", "--ranks", "2", "--elastic", "1:2"], "exclude each other"),
                            (["--recompute", "all"], "expected blocks, or auto:MB"),
                            (["--recompute", "auto:0"], "expected blocks, or auto:MB"),
                            (["--recompute", "auto:nan"], "expected blocks, or auto:MB")):
            self.assertIn(what, self.train("refused", 1, *words, code=2).stderr)
        self.assertIn("with everything computed again",
                      self.train("small", 3, "--parallel", "none", "--recompute", "auto:1", code=1).stderr)
        self.assertIn("nothing to compute again", self.run_program(
            "train", "--data", "mnist", "--data-dir", "tiny", "--model", "cnn", "--batch", "8", "--parallel", "none",
            "--recompute", "blocks", "--out", "cnn", code=1).stderr)

    def test_what_fit_promises_is_so(self):
        memory = 80_000_000
        done = self.run_program("fit", "--model", "resnet20", "--memory", "80MB", "--optimizer", "adamw", "--ranks", "4", "--json")
        ways = {way["options"]: way for way in json.loads(done.stdout)["ways"]}
        for options in ("", "--recompute blocks", "--dtype bf16", "--dtype bf16 --recompute blocks"):
            way = ways[options]
            self.assertLessEqual(way["measured_bytes"], memory)
            self.assertGreater(way["measured_bytes"], 0.8 * memory)  # which comes in blocks
            self.assertAlmostEqual(way["predicted_bytes"] / way["measured_bytes"], 1, delta=0.1)
        self.assertGreater(ways["--recompute blocks"]["batch"], 1.5 * ways[""]["batch"])
        self.assertGreater(ways["--ranks 4 --zero 1"]["batch"], ways["--ranks 4"]["batch"])
        self.assertGreaterEqual(ways["--ranks 4 --zero 2"]["batch"], ways["--ranks 4 --zero 1"]["batch"])
        self.assertEqual(ways["--ranks 4"]["batch"], 4 * ways[""]["batch"])
        tiny = self.run_program("fit", "--model", "resnet18", "--memory", "1MB", "--json")
        self.assertEqual({way["batch"] for way in json.loads(tiny.stdout)["ways"]}, {0})
        # If a step of the predicted batch was measured, the same step on several ranks needs as much.
        for model in ("resnet20", "lenet"):
            done = self.run_program("fit", "--model", model, "--memory", "40MB", "--json")
            ways = {way["options"]: way for way in json.loads(done.stdout)["ways"]}
            self.assertEqual(ways["--ranks 2"]["predicted_bytes"], ways[""]["measured_bytes"])

    def test_a_run_out_of_memory_says_what_fits(self):
        def train(out, *words, code=0):
            limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (700 << 20, 700 << 20))
            return self.run_program("train", "--data", "digits", "--model", "resnet20", "--epochs", "1", "--max-steps", "1",
                                    "--parallel", "none", "--out", out, *words, code=code, env={"RINGGRAD_THREADS": "1"},
                                    preexec_fn=limit).stderr

        said = train("large", "--batch", "1024", code=7)
        self.assertIn("out of memory on cpu:0", said)
        fits = {way: int(batch) for way, batch in re.findall(r"^(|--.*?) +(\d+) +\d+ MB +–$", said, re.M)}
        alone = ["", "--dtype bf16", "--recompute blocks", "--dtype bf16 --recompute blocks"]
        several = ["--parallel dp --ranks 2", "--ranks 2", "--ranks 2 --zero 1", "--ranks 2 --zero 2"]
        self.assertEqual(list(fits), alone + [f"{way} {more}".strip() for way in alone for more in several])
        self.assertLess(fits[""], 1024)
        self.assertGreater(fits["--recompute blocks"], 1.5 * fits[""])
        self.assertGreater(fits["--dtype bf16"], fits[""])
        self.assertLessEqual(fits["--parallel dp --ranks 2"], fits[""])
        self.assertEqual(fits["--ranks 2"], 2 * fits[""])
        self.assertGreaterEqual(fits["--ranks 2 --zero 2"], fits["--ranks 2 --zero 1"])
        # The limit counts addresses: a thread's stack and what an allocator keeps for it, too.
        train("fits", "--batch", str(4 * fits[""] // 5))
        train("recompute", "--batch", str(4 * fits["--recompute blocks"] // 5), "--recompute", "blocks")
        parts = re.search(r"(--batch \d+ --accumulate \d+) takes the same steps, of 1024 images", said)[1]
        train("parts", *parts.split())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
