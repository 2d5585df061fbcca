#!/usr/bin/env python3
"""`ringgrad train --shards`, which has the same bits on any number of ranks: program_shards_test.py PATH_TO_RINGGRAD [test names]."""

import json, sys, unittest

from program_case import ProgramCase, write_tiny


class Shards(ProgramCase):
    shared = "."

    def setUp(self):
        super().setUp()
        write_tiny(self.dir / "digits", train=57)  # in batches of 12, of which five shards get two or three; the last one has 9

    def train(self, out, *words, threads="1", code=0):
        common = [] if words[0] == "--resume" else ["--epochs", "2", "--out", out]
        if words[0] not in ("--resume", "--batch"):
            common += ["--batch", "12"]
        return self.run_program("train", *words, *common, "--json", code=code, env={"RINGGRAD_THREADS": threads})

    def bits(self, out, *words, threads="1"):
        """Everything that a run comes to: weights and buffers, and every loss and metric."""
        said = json.loads(self.train(out, *words, threads=threads).stdout)
        epochs = [json.loads(line) for line in (self.dir / out / "metrics.jsonl").read_text().splitlines()]
        of_epochs = [(e["loss"], e["test_loss"], e["test_accuracy"], e["parameter_hash"]) for e in epochs]
        return said["parameters_sha256"], said["test_loss"], of_epochs

    def test_the_same_bits_on_any_number_of_ranks(self):
        for dtype, words in (("fp32", ["--flip", "--crop", "2"]), ("bf16", ["--sync-bn", "--optimizer", "adamw"])):
            words += ["--dtype", dtype, "--shards", "5"]
            expected = self.bits(f"five{dtype}", *words, "--ranks", "5")
            self.assertEqual(len(expected[2]), 2)
            self.assertEqual(self.bits(f"one{dtype}", *words, "--parallel", "none", threads="2"), expected)
            self.assertEqual(self.bits(f"two{dtype}", *words, "--ranks", "2", "--transport", "tcp"), expected)
            self.assertEqual(self.bits(f"three{dtype}", *words, "--ranks", "3", threads="2"), expected)
            if "--sync-bn" not in words:
                for replicas in ("2", "3"):
                    self.assertEqual(self.bits(f"dp{replicas}", *words, "--parallel", "dp", "--ranks", replicas), expected)
        self.assertNotEqual(self.bits("four", "--sync-bn", "--shards", "4", "--ranks", "1")[0], expected[0])

    def test_accumulated_batches_are_shards_too(self):
        """Two batches of 12 in three shards each have the weights of one of 24 in six; the last step has 9 images."""
        words = ["--shards", "3", "--accumulate", "2"]
        expected = self.bits("one", *words, "--parallel", "none")
        self.assertEqual(self.bits("two", *words, "--ranks", "2"), expected)
        self.assertEqual(self.bits("six", "--batch", "24", "--shards", "6", "--parallel", "none")[0], expected[0])

    def test_one_shard_is_one_process(self):
        alone = json.loads(self.train("alone", "--model", "lenet", "--parallel", "none", "--max-steps", "4").stdout)
        said = json.loads(self.train("shard", "--model", "lenet", "--shards", "1", "--max-steps", "4").stdout)
        self.assertEqual((said["ranks"], said["shards"], alone["shards"]), (1, 1, 0))
        self.assertEqual(len(alone["parameters_sha256"]), 64)
        self.assertAlmostEqual(said["test_loss"], alone["test_loss"], delta=1e-5)

    def test_resume_on_another_number_of_ranks_is_bit_exact(self):
        common = ["--shards", "4", "--sync-bn"]
        whole = self.bits("whole", *common, "--ranks", "4")
        self.train("parts", *common, "--ranks", "3", "--max-steps", "3")
        self.train("parts", "--resume", "parts", "--ranks", "1", "--parallel", "none", "--max-steps", "4")
        self.assertEqual(self.bits("parts", "--resume", "parts", "--ranks", "2"), whole)

        done = self.train("parts", "--resume", "parts", "--shards", "8", code=2)
        self.assertIn("--shards is 8, and the run began with 4", done.stderr)
        self.train("plain", "--parallel", "none", "--max-steps", "1")
        done = self.train("plain", "--resume", "plain", "--shards", "2", code=2)
        self.assertIn("--shards is 2, and the run began without", done.stderr)

    def test_shards_that_cannot_be(self):
        for words, expected in (
            (["--shards", "2", "--ranks", "3"], "--shards is 2, and there are 3 ranks"),
            (["--shards", "13"], "--shards 13, and --batch 12: each shard needs an image"),
            (["--shards", "-1"], "--shards is -1, expected 1 to 4096"),
            (["--shards", "2", "--parallel", "dp", "--ranks", "3"], "--shards is 2, and there are 3 replicas"),
            (["--shards", "4", "--parallel", "dp", "--dtype", "fp16"], "--dtype fp16 scales the loss on one device"),
            (["--shards", "4", "--parallel", "dp", "--sync-bn"], "--sync-bn needs --parallel ddp, not dp"),
            (["--shards", "4", "--accumulate", "2", "--sync-bn"], "give --batch 24 instead"),
            (["--shards", "10", "--sync-bn"], "the last batch has 9 for 10 shards"),
        ):
            self.assertIn(expected, self.train("run", *words, code=2).stderr)
            self.assertFalse((self.dir / "run").exists())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
