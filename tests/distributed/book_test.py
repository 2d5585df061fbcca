#!/usr/bin/env python3
"""The book alone: book_test.py PROGRAM LIBRARY. It links by itself, trains on two ranks over TCP, names a rank that is
killed, goes on from its checkpoint, and recognises 98 % of the digits."""

import os, pathlib, re, shutil, signal, subprocess, sys, tempfile, unittest

PROGRAM, LIBRARY = (pathlib.Path(path).resolve() for path in sys.argv[1:3])


def process_of_rank(launcher, rank):
    for entry in pathlib.Path("/proc").iterdir():
        try:
            parent = int(re.search(r"\) \S (\d+)", (entry / "stat").read_text())[1])
            if parent == launcher and f"RANK={rank}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                return int(entry.name)
        except (OSError, TypeError):
            continue
    raise AssertionError(f"no process of rank {rank}")


class Book(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ringgrad-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.command = [PROGRAM, "--ranks", "2", "--folder", self.folder]

    def test_it_needs_nothing_else_of_ours(self):
        def symbols(*options):
            printed = subprocess.run(["nm", "--format=posix", *options, LIBRARY], check=True, capture_output=True)
            return {line.split()[0] for line in printed.stdout.decode().splitlines() if " " in line}

        undefined = symbols("--undefined-only") - symbols("--defined-only")
        self.assertGreater(len(undefined), 100)  # the C++ library's
        self.assertEqual([name for name in undefined if "ringgrad" in name], [])

    def test_it_trains_and_survives(self):
        first = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(first.kill)
        line = first.stdout.readline()
        self.assertIn("epoch 1: ", line, line + (first.stderr.read() if not line else ""))
        os.kill(process_of_rank(first.pid, 1), signal.SIGKILL)
        _, words = first.communicate(timeout=60)
        self.assertEqual(first.returncode, 5, words)
        self.assertRegex(words, r"rank 1\b.*(Killed|SIGKILL)")

        second = subprocess.run(self.command, capture_output=True, text=True)
        self.assertEqual(second.returncode, 0, second.stderr)
        self.assertIn("resumes after epoch 1\n", second.stdout)
        recognised = re.findall(r"^epoch 5: ([\d.]+) %", second.stdout, re.M)
        self.assertEqual(len(recognised), 1, second.stdout)
        self.assertGreaterEqual(float(recognised[0]), 98.0, second.stdout)

    def test_a_strange_checkpoint_is_named(self):
        pathlib.Path(self.folder, "checkpoint.safetensors").write_bytes(b"\x02" + bytes(7) + b"{}")
        run = subprocess.run(self.command, capture_output=True, text=True)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("checkpoint.safetensors does not say how many epochs it has seen", run.stderr)

    def test_a_mistake_is_named(self):
        for options, words in [
            (["--rank", "2"], "--rank: no such option, expected --ranks, --epochs, --network or --folder"),
            (["--ranks"], "--ranks: expected a value behind it"),
            (["--epochs", "0"], "--epochs is '0', expected a whole number from 1 on"),
            (["--network", "vgg"], "--network is 'vgg', expected small, convnet or resnet20"),
        ]:
            run = subprocess.run([PROGRAM, *options], capture_output=True, text=True, cwd=self.folder)
            self.assertEqual((run.returncode, run.stderr), (2, f"ringgrad_book: {words}\n"))
            self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
