#!/usr/bin/env python3
"""The program with `--device cuda` where there is no device, one, or too little memory: emulator_program_test.py RINGGRAD.

A user meets exit codes 3 and 7, errors that name the device, and a checkpoint of a GPU that goes on on the CPU. The bytes
are the same whether steps are captured or not, and whether the device or the loader makes the batches. Measurements
between devices are tested as far as an emulator can: ranks in processes of their own need NCCL and GPUs.
"""

import json, os, pathlib, shutil, subprocess, sys, tempfile, unittest

from noise_images import write_idx

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()


class Devices(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ringgrad-test-"))
        self.addCleanup(shutil.rmtree, self.dir)

    def run_program(self, *words, code=0, devices=1, **environment):
        variables = {**os.environ, "RINGGRAD_DATA_DIR": str(self.dir), "RINGGRAD_CUDA_DEVICES": str(devices), **environment}
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, cwd=self.dir, env=variables, timeout=120)
        self.assertEqual(done.returncode, code, f"{words}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}")
        return done

    def train(self, *words, **options):
        return self.run_program("train", "--parallel", "none", *words, **options).stderr

    def test_a_missing_device_is_named(self):
        self.assertIn("no cuda device: no CUDA-capable device is detected", self.train("--device", "cuda", code=3, devices=0))
        self.assertIn("device cuda:2 does not exist", self.train("--device", "cuda:2", code=3))
        self.assertIn("RINGGRAD_CUDA_DEVICES is 'many'", self.train("--device", "cuda", code=3, devices="many"))

    def test_too_little_memory(self):
        said = self.train("--device", "cuda", "--model", "lenet", code=7, RINGGRAD_EMU_MEMORY_MB="1")
        self.assertRegex(said, r"out of memory on cuda:0: asked for \d+ bytes; \d+ bytes are in live tensors")
        self.assertRegex(said, r"`ringgrad fit --model lenet --optimizer sgd --memory \d+MB --ranks 2 --device cuda` measures")
        self.assertIn("RINGGRAD_CUDA_GRAPHS=0 captures none", said)
        self.assertFalse(list(self.dir.rglob("*.tmp.*")))

    def test_a_run_on_a_device_goes_on_on_the_cpu(self):
        short = ("--model", "lenet", "--batch", "8", "--max-steps", "2")
        said = self.train("--device", "cuda:1", *short, "--out", "run", devices=2)
        self.assertIn("cuda:1 (emulated on the CPU)", said)
        self.train("--resume", "run", "--device", "cpu", "--max-steps", "3", devices=0)
        on_cpu, on_device = (json.loads(self.run_program("predict", "run", "3", "--device", device, "--json").stdout)
                             for device in ("cpu", "cuda"))
        self.assertEqual(on_device["prediction"], on_cpu["prediction"])
        for name, probability in on_cpu["probabilities"].items():
            self.assertAlmostEqual(on_device["probabilities"][name], probability, places=4)

    # ---- what is measured between devices ----------------------------------------------------------------------------

    def test_ranks_on_devices_need_nccl_between_processes(self):
        for words in (("trace",), ("bench", "allreduce")):
            self.assertIn("no cuda device", self.run_program(*words, "--device", "cuda", code=3, devices=0).stderr)
            self.assertIn("need NCCL between processes", self.run_program(*words, "--device", "cuda", code=3).stderr)
            self.assertIn("does not go with", self.run_program(*words, "--device", "cuda", "--backend", "ring", code=2).stderr)

    def test_bench_ddp_measures_data_parallel_on_two_devices(self):
        common = ("bench", "ddp", "--device", "cuda", "--model", "lenet", "--batch", "4", "--seconds", "0.01", "--rounds", "1",
                  "--json")
        done = self.run_program(*common, devices=2)
        self.assertIn("times mean nothing", done.stderr)
        self.assertIn("the ranks of ddp on cuda need NCCL", done.stderr)
        document = json.loads(done.stdout)
        self.assertEqual(document["processor"], "emulated on the CPU")
        self.assertEqual([row["row"] for row in document["rows"]], ["none", "dp"])
        for row, devices in zip(document["rows"], (1, 2)):
            self.assertGreater(row["images_per_second"], 0)
            self.assertEqual(len(row["memory_bytes"]), devices)
        self.assertLess(document["max_difference"]["none_dp"], 1e-6)
        self.assertIn("cuda:1 does not exist", self.run_program(*common, code=3).stderr)
        self.run_program(*common, code=3, devices=0)

    def test_a_single_rank_on_a_device_measures_itself(self):
        """Uses NCCL with one rank, which the emulator has."""
        common = ("launch", "-n", "1", "--", PROGRAM, "bench")
        for backend in ("nccl", "nccl-ring"):
            done = self.run_program(*common, "allreduce", "--device", "cuda", "--backend", backend, "-b", "8", "-e", "4K", "-f",
                                    "64", "-n", "2", "--json")
            document = json.loads(done.stdout)
            self.assertEqual((document["backend"], document["device"]), (backend + ", and ring", "cuda:0"))
            self.assertEqual([row["wrong"] for row in document["rows"]], [0, 0])
        self.run_program(*common, "ddp", "--row", "ddp", "--ranks", "1", "--device", "cuda", "--model", "lenet", "--batch", "2",
                         "--seconds", "0.01", RINGGRAD_BENCH_FILE="row.json")
        row = json.loads((self.dir / "row.json").read_text())
        self.assertGreater(row["kept_of_no_communication"], 0)
        self.assertNotIn("buckets", row)  # the host's times would say nothing

    # ---- the data set on the device, and captured steps --------------------------------------------------------------

    AUGMENTED = ("--crop", "2", "--flip", "--cutout", "6")

    def noise(self, images):
        folder = self.dir / "mnist"
        folder.mkdir()
        write_idx(folder, "train", images)
        write_idx(folder, "t10k", 6)
        return ("--device", "cuda", "--data", "mnist", "--model", "cnn", "--batch", "4", "--lr", "0.01")

    def same_bytes(self, *runs):
        for name in ("model.safetensors", "checkpoint.safetensors"):
            first, *others = [(self.dir / run / name).read_bytes() for run in runs]
            for run, other in zip(runs[1:], others):
                self.assertEqual(first, other, f"{name} of {runs[0]} and {run}")

    def test_captured_steps_give_the_same_bytes(self):
        common = (*self.noise(22), "--epochs", "2")  # five full batches and a short one, twice
        fp16 = ("--dtype", "fp16", "--clip-norm", "1", "--label-smoothing", "0.1")
        recipes = ((), self.AUGMENTED, (*fp16, "--amp", "O3", *self.AUGMENTED), (*fp16, "--amp", "O2", "--optimizer", "adam"))
        for i, recipe in enumerate(recipes):
            with self.subTest(recipe=recipe):
                said = self.train(*common, *recipe, "--out", f"captured{i}")
                self.assertIn("on the device, augmented there · steps are captured", said)
                said = self.train(*common, *recipe, "--out", f"eager{i}", RINGGRAD_CUDA_GRAPHS="0")
                self.assertIn("on the device, augmented there · steps are not captured: RINGGRAD_CUDA_GRAPHS=0\n", said)
                self.same_bytes(f"captured{i}", f"eager{i}")

    def test_captured_steps_are_not_traced(self):
        said = self.train(*self.noise(22), "--epochs", "1", "--trace-steps", "4:5", code=2)
        self.assertIn("that are captured, which RINGGRAD_CUDA_GRAPHS=0 prevents", said)

    def test_a_run_that_is_stopped_goes_on_with_the_same_bytes(self):
        common = (*self.noise(22), "--epochs", "2", *self.AUGMENTED)
        self.train(*common, "--out", "whole")
        for steps in ("4", "6", "8"):  # in the middle of an epoch, at its end, in the next one
            self.train(*common, "--out", steps, "--max-steps", steps)
            self.train("--device", "cuda", "--resume", steps)
            self.same_bytes("whole", steps)

    def test_a_data_set_that_does_not_fit_comes_from_the_loader(self):
        common = (*self.noise(10000), "--max-steps", "4", *self.AUGMENTED)
        self.train(*common, "--out", "fits")
        said = self.train(*common, "--out", "large", RINGGRAD_EMU_MEMORY_MB="12")
        self.assertIn("of images stay on the host: cuda:0 has", said)
        self.assertIn("· steps are not captured: the images stay on the host\n", said)
        self.same_bytes("fits", "large")


if __name__ == "__main__":
    unittest.main()
