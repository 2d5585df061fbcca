#!/usr/bin/env python3
"""`ringgrad train --device cuda` where there is no device, one, or too little memory: emulator_program_test.py RINGGRAD.

What a user meets: exit codes 3 and 7, errors that name the device, and a checkpoint of a GPU that goes on on the CPU.
"""

import os, pathlib, shutil, subprocess, sys, tempfile, unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()


class Devices(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ringgrad-test-"))
        self.addCleanup(shutil.rmtree, self.dir)

    def train(self, *words, code=0, devices=1, **environment):
        variables = {**os.environ, "RINGGRAD_DATA_DIR": str(self.dir), "RINGGRAD_CUDA_DEVICES": str(devices), **environment}
        command = [PROGRAM, "train", "--parallel", "none", *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.dir, env=variables, timeout=120)
        self.assertEqual(done.returncode, code, f"{words}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}")
        return done.stderr

    def test_a_missing_device_is_named(self):
        self.assertIn("no cuda device", self.train("--device", "cuda", code=3, devices=0))
        self.assertIn("device cuda:2 does not exist", self.train("--device", "cuda:2", code=3))
        self.assertIn("RINGGRAD_CUDA_DEVICES is 'many'", self.train("--device", "cuda", code=3, devices="many"))

    def test_too_little_memory(self):
        said = self.train("--device", "cuda", "--model", "lenet", code=7, RINGGRAD_EMU_MEMORY_MB="1")
        self.assertRegex(said, r"out of memory on cuda:0: asked for \d+ bytes; \d+ bytes are in live tensors")
        self.assertFalse(list(self.dir.rglob("*.tmp.*")))

    def test_a_run_on_a_device_goes_on_on_the_cpu(self):
        short = ("--model", "lenet", "--batch", "8", "--max-steps", "2")
        said = self.train("--device", "cuda:1", *short, "--out", "run", devices=2)
        self.assertIn("cuda:1 (emulated on the CPU)", said)
        self.train("--resume", "run", "--device", "cpu", "--max-steps", "3", devices=0)


if __name__ == "__main__":
    unittest.main()
