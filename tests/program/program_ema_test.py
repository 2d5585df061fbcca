#!/usr/bin/env python3
"""`ringgrad train --ema`, a moving average of the weights: program_ema_test.py PATH_TO_RINGGRAD [test names]."""

import array, json, shutil, sys, unittest

from program_case import ProgramCase, read_safetensors, write_tiny

STEPS = 9  # of 6 an epoch
TINY = ["--model", "cnn", "--batch", "8", "--lr", "0.3", "--schedule", "constant"]


def numbers(raw):
    return array.array("f", raw).tolist()


def widened(raw, parts):
    """The numbers of a tensor of float32, or of the upper halves of such: bfloat16."""
    if len(raw) == 4 * parts:
        return numbers(raw)
    return numbers(b"".join(b"\0\0" + raw[i : i + 2] for i in range(0, len(raw), 2)))


class Ema(ProgramCase):
    shared = "."

    def setUp(self):
        super().setUp()
        write_tiny(self.dir / "digits")

    def tensors(self, path, prefix=""):
        found, _ = read_safetensors(self.dir / path)
        return {name[len(prefix) :]: raw for name, raw in found.items() if name.startswith(prefix)}

    def test_the_average_of_every_step_resumed_after_each(self):
        """The recurrence in double, from the weights that each step's checkpoint has; and the same bits in one go."""
        self.run_program("train", *TINY, "--parallel", "none", "--max-steps", "1", "--out", "begin")
        begin = self.tensors("begin/model.safetensors")
        alone, two = ["--parallel", "none"], ["--ranks", "2"]
        for decay, *words in (("0.3", *alone), ("0.6", *alone), ("0.6", *alone, "--dtype", "fp16"),  # 0.3 from step 3 on
                              ("0.6", *alone, "--dtype", "bf16", "--amp", "O2"), ("0.6", "--parallel", "dp", "--ranks", "2"),
                              ("0.6", *two), ("0.6", *two, "--zero", "2"), ("0.6", *two, "--shards", "4")):
            with self.subTest(decay=decay, words=words):
                begun = [*TINY, *words, "--epochs", "2", "--ema", decay, "--init", "begin"]
                self.run_program("train", *begun, "--max-steps", str(STEPS), "--out", "whole")
                averages = {name: numbers(raw) for name, raw in begin.items() if not name.endswith("tracked")}
                for step in range(1, STEPS + 1):
                    self.run_program("train", *([*begun, "--out", "parts"] if step == 1 else ["--resume", "parts"]), "--max-steps", "1")
                    weights = self.tensors("parts/checkpoint.safetensors", "model.")
                    d = min(float(decay), (1 + step) / (10 + step))
                    for name, average in averages.items():
                        averages[name] = [d * a + (1 - d) * w for a, w in zip(average, widened(weights[name], len(average)))]
                kept = self.tensors("parts/model.safetensors")
                self.assertEqual(kept, self.tensors("parts/checkpoint.safetensors", "optim.average."))
                self.assertEqual(kept, self.tensors("whole/model.safetensors"))
                self.assertEqual(kept.keys(), begin.keys())
                self.assertNotEqual(kept, weights)
                for name, raw in kept.items():
                    if name not in averages:  # a counter of batches
                        self.assertEqual(raw, weights[name])
                        continue
                    delta = 2e-6 * max(map(abs, averages[name])) + 1e-9
                    for got, wanted in zip(numbers(raw), averages[name], strict=True):
                        self.assertAlmostEqual(got, wanted, delta=delta, msg=name)
                shutil.rmtree(self.dir / "whole"), shutil.rmtree(self.dir / "parts")

    def test_what_is_tested_and_kept_is_the_average(self):
        for ranks in (["--parallel", "none"], ["--ranks", "2"]):
            with self.subTest(ranks=ranks):
                common = ["train", *TINY, *ranks, "--validation", "0.25", "--ema", "0.9"]
                said = json.loads(self.run_program(*common, "--epochs", "6", "--keep", "both", "--out", "both", "--json").stdout)
                lines = [json.loads(line) for line in (self.dir / "both/metrics.jsonl").read_text().splitlines()]
                for path in ("both", "both/checkpoint.safetensors"):
                    done = self.run_program("eval", path, "--data", "digits", "--json")
                    self.assertIn("moving averages of those in training, by --ema 0.9", done.stderr)
                    self.assertAlmostEqual(json.loads(done.stdout)["loss"], said["test_loss"], delta=1e-6 * said["test_loss"] + 1e-5)
                self.assertAlmostEqual(lines[-1]["test_loss"], said["test_loss"], places=9)
                best = max(lines, key=lambda line: (line["validation_accuracy"], -line["validation_loss"], -line["epoch"]))
                tested = json.loads(self.run_program("eval", "both/best.safetensors", "--json").stdout)
                self.assertAlmostEqual(tested["loss"], best["test_loss"], delta=1e-6 * best["test_loss"] + 1e-5)
                self.run_program(*common, "--epochs", "6", "--keep", "best", "--out", "best")
                self.assertEqual(self.tensors("best/model.safetensors"), self.tensors("both/best.safetensors"))
                # The weights that are trained are those of a run without.
                self.run_program(*common[:-2], "--epochs", "6", "--out", "plain")
                self.assertEqual(self.tensors("plain/model.safetensors"), self.tensors("both/checkpoint.safetensors", "model."))
                self.assertNotIn("moving averages", self.run_program("eval", "plain", "--json").stderr)
                for run in ("both", "best", "plain"):
                    shutil.rmtree(self.dir / run)

    def test_every_command_says_so(self):
        self.run_program("train", *TINY, "--parallel", "none", "--max-steps", "1", "--ema", "0.5", "--out", "run")
        for command in (["eval", "run"], ["predict", "run", "3"], ["export", "--python", "run"]):
            self.assertIn("moving averages of those in training, by --ema 0.5", self.run_program(*command).stderr)
        self.assertEqual(read_safetensors(self.dir / "run/model.safetensors")[1]["ema"], "0.5")

    def test_its_row(self):
        self.assertIn("--ema", self.run_program("train", "--help").stdout)
        self.assertIn("--ema is 1, expected a number in [0, 1)", self.run_program("train", "--ema", "1", code=2).stderr)
        said = self.run_program("train", *TINY, "--parallel", "none", "--max-steps", "1", "--ema", "0.5", "--out", "run")
        self.assertIn("ema 0.5", said.stdout + said.stderr)
        self.assertEqual(json.loads((self.dir / "run/config.json").read_text())["recipe"]["ema"], 0.5)
        refused = self.run_program("train", "--resume", "run", "--ema", "0.4", code=2)
        self.assertIn("leave those options out", refused.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
