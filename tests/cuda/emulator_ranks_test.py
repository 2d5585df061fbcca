#!/usr/bin/env python3
"""`train --parallel ddp --device cuda` on emulated devices, a thread for each rank: emulator_ranks_test.py TRAIN_IN_THREADS.

Checkpoints hold all that training changes. They are the same bytes whether steps are captured or not.
"""

import itertools, json, os, pathlib, shutil, subprocess, sys, tempfile, unittest

from noise_images import write_idx

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
RECIPE = {"model": "cnn", "data": "mnist", "batch": 6, "lr": 0.01, "epochs": 2}


class Ranks(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ringgrad-test-"))
        self.addCleanup(shutil.rmtree, self.dir)
        (self.dir / "mnist").mkdir()
        self.images(22)  # three full batches, and four images, of which one rank of three has two

    def images(self, train):
        write_idx(self.dir / "mnist", "train", train)
        write_idx(self.dir / "mnist", "t10k", 6)

    def train(self, out, *words, ranks=2, recipe={}, **environment):
        variables = {**os.environ, "RINGGRAD_DATA_DIR": str(self.dir), "RINGGRAD_CUDA_DEVICES": str(ranks), **environment}
        words = ["threads", "--out", out, "--ranks", str(ranks), "--recipe", json.dumps({**RECIPE, **recipe}), *words]
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, cwd=self.dir, env=variables, timeout=300)
        self.assertEqual(done.returncode, 0, f"{words}\n{done.stdout}\n{done.stderr}")
        return json.loads(done.stdout)

    def trained(self, out, *words, **options):
        result = self.train(out, *words, **options)
        self.assertEqual(set(result["errors"]), {""}, result)
        self.assertEqual(len(set(result["steps"])), 1, result)
        return result

    def test_captured_steps_give_the_same_bytes(self):
        fp16 = {"dtype": "fp16", "clip_norm": 1, "label_smoothing": 0.1, "crop": 2, "flip": True}
        cases = ((2, (), {}), (3, (), {"optimizer": "adam", "clip_norm": 1, "ema": 0.9, "label_smoothing": 0.1}),
                 (3, (), {"dtype": "bf16", "amp": "O2", "crop": 2, "flip": True, "cutout": 6}),
                 (2, ("--bucket-mb", "0.02"), {"dtype": "bf16", "amp": "O3"}),
                 (3, (), {**fp16, "amp": "O2", "optimizer": "adam"}), (2, ("--sync-bn",), {**fp16, "amp": "O2"}),
                 (3, ("--sync-bn",), {}), (3, ("--zero", "1"), {"optimizer": "adam", "clip_norm": 1}),
                 (2, ("--zero", "1", "--sync-bn"), {**fp16, "amp": "O2"}))
        for ranks, words, recipe in cases:
            with self.subTest(ranks=ranks, words=words, recipe=recipe):
                captured = self.trained("captured", *words, ranks=ranks, recipe=recipe, RINGGRAD_EMU_STREAMS="random:1")
                # The full batches behind the third, whose step is recorded.
                self.assertEqual((captured["captured"], captured["replayed"]), ("captured", [3] * ranks))
                eager = self.trained("eager", *words, ranks=ranks, recipe=recipe, RINGGRAD_CUDA_GRAPHS="0")
                self.assertEqual((eager["captured"], eager["steps"]), ("RINGGRAD_CUDA_GRAPHS=0", [8] * ranks))
                self.assertEqual(eager["replayed"], [0] * ranks)
                self.assertEqual((self.dir / "captured").read_bytes(), (self.dir / "eager").read_bytes())

    def test_recomputed_blocks_are_captured(self):
        self.images(10)
        recipe = {"model": "resnet20", "batch": 2, "epochs": 1}
        for words in (("--recompute", "blocks"), ("--recompute", "blocks", "--sync-bn")):
            with self.subTest(words=words):
                captured = self.trained("captured", *words, recipe=recipe)
                self.assertEqual(captured["captured"], "captured")
                self.trained("eager", *words, recipe=recipe, RINGGRAD_CUDA_GRAPHS="0")
                self.assertEqual((self.dir / "captured").read_bytes(), (self.dir / "eager").read_bytes())

    def test_steps_without_a_full_batch_are_not_captured(self):
        result = self.trained("eager", recipe={"model": "lenet", "batch": 24})
        self.assertEqual((result["captured"], result["steps"]), ("no batch is full", [2, 2]))

    def test_steps_of_several_batches_are_not_captured(self):
        self.assertEqual(self.trained("eager", recipe={"model": "lenet", "batch": 2, "accumulate": 3})["captured"], "--accumulate")

    # ---- ranks that stop, fail or stay away while others replay ------------------------------------------------------

    def test_a_signal_stops_all_ranks_after_the_same_step(self):
        # The ranks ask each other once a second, after 50 steps, and where a batch is short: here in each fourth step.
        for images, steps in ((24, range(9, 61)), (22, range(9, 13))):
            with self.subTest(images=images):
                self.images(images)
                result = self.trained("stopped", "--interrupt-at", "9", recipe={"model": "lenet", "epochs": 20})
                self.assertIn(result["steps"][0], steps)

    def test_a_rank_that_fails_or_stays_away_is_named(self):
        self.images(24)
        faults = (("--leave-at", "rank 1 failed with an exception"),
                  ("--pause-at", "(rank 1 has not come to it|another rank is missing)"))
        for (option, words), more in itertools.product(faults, ((), ("--sync-bn",))):
            with self.subTest(option=option, more=more):
                recipe = {"model": "cnn" if more else "lenet", "epochs": 20}
                result = self.train("broken", option, "10", *more, recipe=recipe)
                self.assertRegex(result["errors"][0], r"replay of recorded step 1, step (9|10): .*" + words)
                self.assertNotEqual(result["errors"][1], "")


if __name__ == "__main__":
    unittest.main()
