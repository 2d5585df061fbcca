#!/usr/bin/env python3
"""Tests the library before main, after fork(), in a loop of launches and within a rank.

    process_test.py PROCESS_PROGRAMS
"""

import os, pathlib, re, subprocess, sys, tempfile, time, unittest

PROGRAM = str(pathlib.Path(sys.argv[1]).resolve())


class Process(unittest.TestCase):
    def run_program(self, *words, code=0, **environment):
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "RINGGRAD_THREADS": "2", **environment})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_global_tensors_and_modules(self):
        mean, dims, gradient = self.run_program("globals").split()
        self.assertEqual((mean, dims, gradient), ("0.4490", "4", "4"))

    def test_a_forked_child_computes(self):
        said = self.run_program("fork")
        self.assertEqual(said.count("child: compute ok"), 5, said)
        self.assertEqual(said.count("child: share ok"), 5, said)
        self.assertEqual(said.count("child: data: data_loader: this process was forked in the middle of a pass"), 5, said)
        self.assertEqual(said.count("child: data anew ok"), 5, said)
        self.assertEqual(said.count("parent: child ended with 0"), 5, said)

    def test_a_child_of_a_rank_has_no_part_in_its_group(self):
        said = self.run_program("fork-in-rank")
        self.assertEqual(said.count("child: compute ok"), 2, said)
        for call, words in (("all_reduce", "all_reduce: this process was forked from rank "),
                            ("send", "send/recv: this process was forked from rank "),
                            ("split", "all_gather: this process was forked from rank "),
                            ("allocate_shared", "allocate_shared: this process was forked from rank "),
                            ("process_group", "process_group: this process was forked from rank "),
                            ("init", "rendezvous: RANK=")):
            self.assertEqual(said.count(f"child: {call}: {words}"), 2, said)
        self.assertEqual(said.count("parent: child ended with 0"), 2, said)
        for rank in 0, 1:
            self.assertIn(f"rank {rank}: sum 2", said)

    def test_a_child_does_not_wait_for_parameters_that_its_parent_gathers(self):
        said = self.run_program("fork-in-step")
        self.assertIn("child: parameter: zero: a forked child uses a parameter that the ranks were gathering", said)
        self.assertIn("parent: child ended with 0", said)
        for rank in 0, 1:
            self.assertIn(f"rank {rank}: stepped", said)

    def test_a_child_does_not_hide_its_parents_death(self):
        for transport in "auto", "tcp":
            begin = time.monotonic()
            said = self.run_program("die", transport, code=5)
            self.assertIn("[rank 1] was killed by signal 9", said)
            self.assertIn("rank 1 died: its connection to rank 0 was closed without a goodbye", said)
            self.assertLess(time.monotonic() - begin, 15)  # the child sleeps for 20 s

    def test_launch_says_which_variable_is_wrong(self):
        for name, value in (("RINGGRAD_TIMEOUT", "-1"), ("RINGGRAD_TIMEOUT", "nan"), ("RINGGRAD_RENDEZVOUS_TIMEOUT", "x"),
                            ("RINGGRAD_CHECKSUMS", "maybe")):
            self.assertIn(name, self.run_program("fork-in-rank", code=2, **{name: value}))

    def test_each_launch_does_its_own_work(self):
        with tempfile.TemporaryDirectory() as folder:
            said = self.run_program("loop", CODES=f"{folder}/codes")
            codes = [line.split() for line in pathlib.Path(folder, "codes").read_text().splitlines()]
        for job, total in ((0, 0), (1, 2), (2, 4)):
            self.assertEqual(said.count(f"job {job} of {PROGRAM}: {total}\n"), 2, said)
        self.assertEqual(said.count("end of main"), 1, said)
        self.assertEqual(said.count(f"main of {PROGRAM}\n"), 1 + 3 * 2, said)
        by_process = {}
        for process, code in codes:
            by_process.setdefault(process, []).append(code)
        # The starter makes three calls. Ranks of the second job first reach one earlier call, those
        # of the third job two.
        self.assertEqual(sorted(by_process.values()),
                         sorted([["0", "1", "0"], ["0"], ["0"], ["0", "1"], ["0", "1"]]))

    def test_a_job_within_a_rank_is_told_whose_environment_it_has(self):
        said = self.run_program("outer")
        self.assertRegex(said, r"rendezvous: RANK=0 is the environment of process \d+, rank 0 of 2 in its own job, which "
                               r"has started this process; for a job of its own: env -u RANK -u WORLD_SIZE ")
        self.assertIn("code 2", said)
        self.assertIn("code 0", said)
        for rank in 0, 1:
            self.assertIn(f"inner rank {rank}", said)
        self.assertEqual(said.count("end of inner main\n"), 2, said)  # of the refused program, and of the starter


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
