#!/usr/bin/env python3
"""Drives `ringgrad gan`, `reinforce` and `train --preset speedrun` as a person would: program_other_test.py PATH_TO_RINGGRAD [test names]."""

import array, json, struct, sys, unittest

from program_case import DigitsCase, sha256, write_tiny


def weights(path):
    """All float32 numbers of a safetensors file, by name."""
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + size])
    header.pop("__metadata__", None)
    data = raw[8 + size :]
    return {name: array.array("f", data[slice(*entry["data_offsets"])])
            for name, entry in header.items() if entry["dtype"] == "F32"}


class Gan(DigitsCase):
    def gan(self, out, steps, *words, code=0):
        return self.run_program("gan", "--batch", "16", "--max-steps", str(steps), "--out", out, *words, code=code)

    def test_two_ranks_are_as_one(self):
        self.gan("one", 3)
        said = self.gan("two", 3, "--ranks", "2")
        self.assertNotIn("[rank 1]", said.stderr)
        one, two = weights(self.dir / "one/model.safetensors"), weights(self.dir / "two/model.safetensors")
        self.assertEqual(set(one), set(two))
        apart = [abs(a - b) for name in one for a, b in zip(one[name], two[name])]
        self.assertGreater(max(apart), 0)  # other sums, other rounding
        self.assertLess(sum(apart) / len(apart), 0.02 * 2e-4)  # of what a step of Adam moves each weight

    def test_the_same_bits_on_any_number_of_ranks(self):
        write_tiny(self.dir / "tiny/mnist")
        said = []
        for ranks in ("1", "2", "3"):
            words = ["--data", "mnist", "--data-dir", "tiny", "--batch", "14", "--epochs", "1", "--shards", "3"]
            done = json.loads(self.run_program("gan", *words, "--ranks", ranks, "--out", ranks, "--json").stdout)
            said.append([done["parameters_sha256"], *((e["discriminator_loss"], e["generator_loss"]) for e in done["epochs"])])
        self.assertEqual(said, said[:1] * 3)
        self.assertEqual(len(said[0]), 2)

    def test_it_goes_on_on_another_number_of_ranks_bit_for_bit(self):
        self.gan("shards", 3, "--shards", "2")
        self.gan("moved", 2, "--shards", "2", "--ranks", "2")
        self.run_program("gan", "--resume", "moved", "--max-steps", "1")
        self.assertEqual(*(sha256(self.dir / run / "model.safetensors") for run in ("shards", "moved")))

    def test_it_goes_on_bit_for_bit(self):
        self.gan("whole", 4)
        self.gan("parts", 3)
        self.run_program("gan", "--resume", "parts", "--max-steps", "1")
        self.assertEqual(*(sha256(self.dir / run / "model.safetensors") for run in ("whole", "parts")))

    def test_an_epoch_ends_with_a_page_of_drawings(self):
        write_tiny(self.dir / "tiny/mnist")
        done = self.run_program("gan", "--data", "mnist", "--data-dir", "tiny", "--batch", "16", "--epochs", "1", "--out",
                                "run", "--json")
        epochs = json.loads(done.stdout)["epochs"]
        self.assertEqual(len(epochs), 1)
        self.assertEqual(epochs, [json.loads(line) for line in (self.dir / "run/metrics.jsonl").read_text().splitlines()])
        self.assertGreater((self.dir / epochs[0]["samples"]).stat().st_size, 1000)
        self.assertTrue((self.dir / epochs[0]["samples"]).read_bytes().startswith(b"\x89PNG"))
        self.assertIn("no run of `train`, but of `gan`", self.run_program("eval", "run", code=4).stderr)  # it classifies nothing

    def test_what_cannot_be_is_refused(self):
        self.gan("run", 1, "--ranks", "17", code=2)
        self.gan("run", 1, "--data", "nothing", code=1)
        for words, expected in ((["--shards", "2", "--ranks", "3"], "--shards is 2, and there are 3 ranks"),
                                (["--shards", "17"], "--batch is 16 for 17 parts"),
                                (["--shards", "-1"], "--shards")):
            self.assertIn(expected, self.gan("run", 1, *words, code=2).stderr)
        self.gan("run", 1, "--data", "mnist", "--data-dir", "none", code=4)
        self.gan("run", 1, "--batch", "20000", code=2)
        self.assertFalse((self.dir / "run").exists())
        self.short_run("classifier", 1)
        self.assertIn("is no run of `gan`, but of `train`", self.run_program("gan", "--resume", "classifier", code=4).stderr)
        self.run_program("gan", "--resume", "classifier", "--lr", "0.1", code=2)
        (self.dir / "run").mkdir()
        (self.dir / "run/config.json").write_text('{"gan": {"batch": "many"}}')
        self.assertIn("config.json is not valid: batch", self.run_program("gan", "--resume", "run", code=4).stderr)


class Reinforce(DigitsCase):
    def reinforce(self, out, episodes, *words):
        return self.run_program("reinforce", "--max-steps", str(episodes), "--out", out, *words)

    def test_ranks_stay_one_policy_and_runs_are_repeatable(self):
        for out in ("first", "second"):
            self.reinforce(out, 20, "--ranks", "2")
        self.assertEqual(*(sha256(self.dir / run / "model.safetensors") for run in ("first", "second")))

    def test_it_goes_on_bit_for_bit(self):
        self.reinforce("whole", 8)
        self.reinforce("parts", 5)
        done = self.run_program("reinforce", "--resume", "parts", "--max-steps", "3", "--json")
        self.assertEqual(json.loads(done.stdout)["episodes"], 8)
        self.assertEqual(*(sha256(self.dir / run / "model.safetensors") for run in ("whole", "parts")))

    def test_the_same_bits_on_any_number_of_ranks(self):
        said = []
        for ranks in ("1", "2", "3"):
            done = self.run_program("reinforce", "--episodes", "12", "--shards", "3", "--ranks", ranks, "--out", ranks, "--json")
            said.append({key: value for key, value in json.loads(done.stdout).items()
                         if key not in ("run", "ranks", "pushes_per_rank")})
        self.assertEqual(said, said[:1] * 3)
        self.assertEqual((said[0]["episodes"], said[0]["environments"]), (12, 3))

    def test_it_solves_the_task(self):
        document = json.loads(self.run_program("reinforce", "--out", "run", "--json").stdout)
        self.assertTrue(document["solved"])
        self.assertGreaterEqual(document["mean_length"], 195)

    def test_what_cannot_be_is_refused(self):
        done = self.run_program("reinforce", "--shards", "2", "--ranks", "3", "--out", "run", code=2)
        self.assertIn("--shards is 2, and there are 3 ranks", done.stderr)
        self.assertFalse((self.dir / "run").exists())
        self.short_run("classifier", 1)
        self.assertIn("is no run of `reinforce`",
                      self.run_program("reinforce", "--resume", "classifier", code=4).stderr)


class Speedrun(DigitsCase):
    def speedrun(self, *words, code=0):
        return self.run_program("train", "--preset", "speedrun", *words, code=code)

    def test_it_learns_and_its_model_is_a_model_as_others(self):
        said = json.loads(self.speedrun("--data", "digits", "--seed", "3", "--out", "run", "--json").stdout)
        self.assertGreater(said["test_accuracy"], 0.9)
        self.assertGreater(said["seconds_from_start"], said["seconds_of_training"])
        self.assertEqual((said["model"], said["epochs"], said["seed"]), ("quick", 1, 3))
        seen = json.loads(self.run_program("eval", "run", "--json").stdout)
        self.assertEqual(seen["accuracy"], said["test_accuracy"])
        again = json.loads(self.speedrun("--data", "digits", "--seed", "3", "--no-report", "--json").stdout)
        self.assertEqual(again["parameters_sha256"], said["parameters_sha256"])
        self.those_who_read_runs_understand_it(said["test_accuracy"])

    def those_who_read_runs_understand_it(self, accuracy):
        self.speedrun("--data", "digits", "--epochs", "2")
        both = json.loads(self.run_program("runs", "--json").stdout)["runs"]
        self.assertEqual([(run["verdict"]["name"], run["epochs"]) for run in both], [("unmeasured", 1), ("unmeasured", 2)])
        seen = json.loads(self.run_program("watch", "1", "--json").stdout)
        self.assertEqual((seen["state"], seen["epochs"], seen["test_accuracy"]), ("ended", 1, accuracy))
        self.assertIn("epoch=2 step=", self.run_program("watch", "latest").stdout)
        self.assertEqual(json.loads(self.run_program("watch", "latest", "--json").stdout)["epochs"], 2)
        told = json.loads(self.run_program("report", "latest", "--json").stdout)["runs"][0]
        self.assertEqual((told["verdict"]["name"], told["notes"]), ("unmeasured", []))
        page = (self.dir / "runs/latest/report.html").read_text()
        self.assertIn("--preset speedrun", page)  # the command
        self.assertNotIn("momentum", page)  # not the recipe's
        self.assertNotIn("Learning rate", page)
        beside = json.loads(self.run_program("compare", "1", "latest", "--json").stdout)
        self.assertEqual([one["what"] for one in beside["differences"]], ["epochs", "seed"])
        self.assertEqual(beside["test_accuracy"][0], accuracy)
        self.assertGreater(beside["images_per_second"][0], 0)

    def test_what_a_recipe_fixes_cannot_be_asked_for(self):
        self.assertIn("not --lr", self.speedrun("--lr", "0.2", code=2).stderr)
        self.assertIn("trains quick on digits", self.speedrun("--data", "digits", "--model", "cnn", code=2).stderr)
        self.assertIn("on one process", self.speedrun("--data", "digits", "--ranks", "2", code=2).stderr)
        for words in (["--device", "cuda"], ["--elastic", "1:2"], ["--parallel", "none"], ["--save-every", "5"], ["--resume", "x"],
                      ["--log-every", "5"], ["--tensorboard"], ["--trace-steps", "1:2"], ["--workers", "1"], ["--shards", "2"],
                      ["--sync-bn"], ["--bucket-mb", "1"], ["--transport", "shm"], ["--backend", "ring"], ["--init", "x"],
                      ["--checksums", "on"], ["--max-steps", "1"], ["--batch", "8"]):
            self.assertIn(f"not {words[0]}\n", self.speedrun("--data", "digits", *words, code=2).stderr)
        for epochs in ("0", "-1"):
            self.assertIn(f"--epochs is {epochs}, expected 1 to", self.speedrun("--epochs", epochs, code=2).stderr)
        write_tiny(self.dir / "tiny/mnist")
        few = self.speedrun("--data", "mnist", "--data-dir", "tiny", "--out", "few", code=1)
        self.assertIn("at least a batch of 128", few.stderr)
        self.assertFalse((self.dir / "few").exists())

    def test_where_it_goes_is_looked_at_before_anything_is_read(self):
        (self.dir / "taken").write_text("")
        for out, code, said in (("taken", 8, "cannot make the directory taken"), ("other", 2, "holds a model.safetensors")):
            (self.dir / "other").mkdir(exist_ok=True)
            (self.dir / "other/model.safetensors").write_text("")
            done = self.speedrun("--data", "digits", "--data-dir", "nowhere", "--out", out, code=code)
            self.assertIn(said, done.stderr)
            self.assertFalse((self.dir / "nowhere").exists())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
