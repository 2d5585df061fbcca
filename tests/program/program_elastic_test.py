#!/usr/bin/env python3
"""`ringgrad train --elastic`, whose ranks die, hang, leave and join: program_elastic_test.py PATH_TO_RINGGRAD [test names]."""

import contextlib, json, os, pathlib, signal, sys, time, unittest

from program_case import ProgramCase, write_idx, write_tiny

EPOCHS = 40  # so many that a test which has to wait for its core still meets the run


class Elastic(ProgramCase):
    shared = "."

    def setUp(self):
        super().setUp()
        write_tiny(self.dir / "digits", train=57)

    def begin(self, out, *words, epochs=EPOCHS, timeout="60"):
        env = {**os.environ, "RINGGRAD_DATA_DIR": self.shared, "RINGGRAD_TIMEOUT": timeout, "RINGGRAD_THREADS": "1"}
        return self.start("train", "--batch", "12", "--epochs", str(epochs), "--ema", "0.9", "--no-report", "--out", out, "--json", *words, env=env)

    def ranks_of(self, job, count):
        listed, pids = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children"), []
        while len(pids) < count and job.poll() is None:
            pids = [int(pid) for pid in listed.read_text().split()]
        return pids

    def wait_for_epochs(self, out, count):
        """The run has so many lines more than when this was called first."""
        path = self.dir / out / "metrics.jsonl"
        deadline = time.time() + 60
        while time.time() < deadline and (not path.exists() or path.read_text().count("\n") < count):
            time.sleep(0.002)

    def end(self, job, code=0):
        said, complained = job.communicate(timeout=100)
        self.assertEqual(job.returncode, code, complained)
        return (json.loads(said) if code == 0 else None), complained

    def bits(self, out, said):
        epochs = [json.loads(line) for line in (self.dir / out / "metrics.jsonl").read_text().splitlines()]
        return said["parameters_sha256"], [(e["epoch"], e["loss"], e["test_loss"], e["parameter_hash"]) for e in epochs if "epoch" in e]

    def undisturbed(self, epochs=EPOCHS):
        said, _ = self.end(self.begin("whole", "--shards", "4", "--ranks", "1", "--parallel", "none", epochs=epochs))
        return self.bits("whole", said)

    def test_killed_stopped_and_joining_ranks_change_no_bit(self):
        expected = self.undisturbed()
        job = self.begin("run", "--shards", "4", "--elastic", "1:4", "--ranks", "3", timeout="1")
        pids = self.ranks_of(job, 3)
        self.wait_for_epochs("run", 2)
        os.kill(pids[0], signal.SIGKILL)  # the one that writes
        self.wait_for_epochs("run", 5)
        job.send_signal(signal.SIGUSR1)
        self.wait_for_epochs("run", 8)
        os.kill(pids[1], signal.SIGSTOP)
        said, complained = self.end(job)
        self.assertEqual(self.bits("run", said), expected)
        self.assertIn("[rank 0] was killed by signal 9", complained)
        self.assertIn("[rank 1] does not come, and is left behind", complained)

    def test_a_rank_that_is_killed_while_starting_is_replaced(self):
        expected = self.undisturbed()
        job = self.begin("run", "--shards", "4", "--elastic", "1:3", "--ranks", "2")
        os.kill(self.ranks_of(job, 2)[1], signal.SIGKILL)
        said, complained = self.end(job)
        self.assertEqual(self.bits("run", said), expected)
        self.assertIn("[rank 1] was killed by signal 9", complained)

    def test_a_request_that_comes_before_the_launcher_does_not_end_it(self):
        for i in range(600):  # which the process reads before it becomes the launcher
            path = self.dir / f"pictures/{i % 2}/{i}.ppm"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"P6 64 64 255\n" + bytes([i % 256]) * (3 * 64 * 64))
        job = self.begin("run", "--data", str(self.dir / "pictures"), "--elastic", "1:3", "--ranks", "2", "--max-steps", "2", epochs=1)
        blocked, deadline = 0, time.time() + 60
        while not blocked >> (signal.SIGUSR1 - 1) & 1 and time.time() < deadline:
            blocked = int(pathlib.Path(f"/proc/{job.pid}/status").read_text().split("SigBlk:")[1].split()[0], 16)
        self.assertFalse((self.dir / "run").exists())
        job.send_signal(signal.SIGUSR1)
        self.end(job)

    def test_a_rank_that_wakes_is_out(self):
        expected = self.undisturbed(120)
        job = self.begin("run", "--shards", "4", "--elastic", "1:2", "--ranks", "2", epochs=120, timeout="0.7")
        pids = self.ranks_of(job, 2)
        self.wait_for_epochs("run", 2)
        os.kill(pids[0], signal.SIGSTOP)
        self.wait_for_epochs("run", 4)  # the other one writes them
        with contextlib.suppress(ProcessLookupError):  # it stood still for so long that it was killed
            os.kill(pids[0], signal.SIGCONT)
        deadline = time.time() + 60  # it ends, and its seat is taken again
        while pids[0] in self.ranks_of(job, 1) and time.time() < deadline:
            time.sleep(0.01)
        said, complained = self.end(job)
        self.assertIn("[rank 0] does not come, and is left behind", complained)
        self.assertEqual(self.bits("run", said), expected)

    def test_too_few_ranks_save_and_end(self):
        expected = self.undisturbed()
        job = self.begin("run", "--shards", "4", "--elastic", "2:2", "--ranks", "2")
        pids = self.ranks_of(job, 2)
        self.wait_for_epochs("run", 3)
        os.kill(pids[0], signal.SIGTERM)  # it leaves
        _, complained = self.end(job, code=5)
        self.assertIn("only 1 rank is left, of at least 2", complained)
        self.assertIn("resume: ", complained)
        said, _ = self.end(self.start("train", "--resume", "run", "--json", "--no-report"))
        self.assertEqual(self.bits("run", said), expected)

    def test_without_shards_only_rounding_differs(self):
        alone, _ = self.end(self.begin("alone", "--model", "lenet", "--parallel", "none", epochs=8))
        job = self.begin("run", "--model", "lenet", "--elastic", "1:3", "--ranks", "3", epochs=8)
        pids = self.ranks_of(job, 3)
        self.wait_for_epochs("run", 2)
        with contextlib.suppress(ProcessLookupError):  # the run is short
            os.kill(pids[2], signal.SIGKILL)
        said, _ = self.end(job)
        self.assertAlmostEqual(said["test_loss"], alone["test_loss"], delta=1e-3 * alone["test_loss"])

    def test_a_rank_with_other_data_may_not_join(self):
        expected = self.undisturbed(60)
        job = self.begin("run", "--shards", "4", "--elastic", "1:3", "--ranks", "2", epochs=60)
        self.wait_for_epochs("run", 2)
        write_idx(self.dir / "digits/train-labels-idx1-ubyte", 57, element=lambda i: (i + 1) % 10)
        job.send_signal(signal.SIGUSR1)
        said, complained = self.end(job)
        self.assertEqual(self.bits("run", said), expected)
        self.assertRegex(complained, r"\[rank 2\] cannot join: elastic: .*57 training images .*there, 57 training images .*in the job")

    def test_numbers_of_ranks_that_cannot_be(self):
        for words, expected in (
            (["--elastic", "3:2"], "--elastic is 3:2: at least 3 ranks are more than at most 2"),
            (["--elastic", "2"], "--elastic is '2', expected MIN:MAX"),
            (["--elastic", "0:2"], "--elastic is '0:2', expected MIN:MAX"),
            (["--elastic", "2:4", "--ranks", "5"], "--ranks is 5, and --elastic 2:4"),
            (["--elastic", "1:4", "--shards", "3"], "--shards is 3, and there are 4 ranks"),
            (["--elastic", "1:4", "--accumulate", "2"], "--accumulate 2 with --elastic 1:4: shards come one after the other"),
            (["--elastic", "1:13"], "--elastic 1:13, and --batch 12: each rank needs an image"),
            (["--elastic", "1:2", "--parallel", "none"], "--elastic is for ranks, and --parallel none is one process"),
            (["--elastic", "1:2", "--backend", "mpi"], "--elastic is for ranks on CPUs"),
        ):
            _, complained = self.end(self.begin("run", *words), code=2)
            self.assertIn(expected, complained)
            self.assertFalse((self.dir / "run").exists())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
