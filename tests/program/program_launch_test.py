#!/usr/bin/env python3
"""`ringgrad launch` where its surroundings are odd: program_launch_test.py PATH_TO_RINGGRAD [test names]."""

import itertools, os, pathlib, resource, select, shutil, signal, socket, subprocess, sys, threading, time, unittest

from program_case import PROGRAM, ProgramCase, write_tiny

SLOW_DISK = PROGRAM.parent / "tests/libslow_disk.so"


class Launch(ProgramCase):
    # Words for sh, which replaces itself by the program: `"$0" … 2>&-`.
    def shell(self, words, code=0):
        done = subprocess.run(["sh", "-c", words, PROGRAM], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=120, cwd=self.dir,
                              env={**os.environ, "RINGGRAD_DATA_DIR": self.shared})
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def launch(self, *words, stderr=subprocess.DEVNULL, **env):
        child = subprocess.Popen([PROGRAM, "launch", "-n", "2", "--", *words], stderr=stderr, env={**os.environ, **env})
        self.addCleanup(child.kill)
        return child

    def children(self, launcher, count):
        listed = pathlib.Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
        while len(listed.read_text().split()) < count:
            time.sleep(0.01)
        return listed.read_text().split()

    def wait_until_stopped(self, pids):
        while any(") T " not in pathlib.Path(f"/proc/{pid}/stat").read_text() for pid in pids):
            time.sleep(0.01)

    # ---- streams ---------------------------------------------------------------------------------------------------

    def test_without_standard_streams(self):
        write_tiny(self.dir / "data/digits")
        self.shell('exec "$0" launch -n 2 -- sh -c "echo to stdout; echo to stderr >&2" 2>&-')
        self.shell('exec "$0" launch -n 2 -- sh -c "exit 7" <&- >&- 2>&-', code=7)
        self.shell('exec "$0" train --batch 8 --ranks 2 --max-steps 2 --out run <&- >&- 2>&-')
        self.assertTrue((self.dir / "run/model.safetensors").exists())

    def test_a_reader_that_stands_still_does_not_hold_up_the_end(self):
        reading, writing = self.full_pipe()
        child = self.launch("sleep", "600", stderr=writing)
        os.close(writing)
        self.children(child, 2)
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(timeout=60), 128 + signal.SIGTERM)
        os.close(reading)

    # A pipe that is full, and its reading end.
    def full_pipe(self):
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        try:
            while True:
                os.write(writing, bytes(4096))
        except BlockingIOError:
            os.set_blocking(writing, True)
        return reading, writing

    def test_training_goes_on_where_nobody_reads(self):
        """Tests one process, ranks, and the other commands that train, at a pipe that is full or has no reader."""
        write_tiny(self.dir / "data/digits")
        kinds = [["train", "--batch", "8", "--epochs", "3", "--ranks", "2"], ["train", "--batch", "8", "--epochs", "3", "--parallel", "none"],
                 ["gan", "--batch", "8", "--epochs", "2"], ["reinforce", "--episodes", "20"]]
        env = {**os.environ, "RINGGRAD_DATA_DIR": "data", "RINGGRAD_TIMEOUT": "4"}
        for number, words in enumerate(kinds):
            for stream in ("stdout", "stderr"):
                for closed in (False, True):
                    with self.subTest(words=words, stream=stream, closed=closed):
                        reading, writing = self.full_pipe()
                        if closed:
                            os.close(reading)
                        other = "stderr" if stream == "stdout" else "stdout"
                        out = f"run{number}{stream}{closed}"
                        child = subprocess.Popen([PROGRAM, *words, "--out", out], cwd=self.dir, env=env, text=True,
                                                 **{stream: writing, other: subprocess.PIPE})
                        os.close(writing)
                        self.addCleanup(child.kill)
                        said = child.communicate(timeout=60)
                        self.assertEqual(child.returncode, 0, said)
                        self.assertTrue((self.dir / out / "model.safetensors").exists())
                        if not closed:
                            self.assertIn("nobody reads", said[0] or said[1])
                            os.close(reading)

    def test_a_reader_that_comes_back_is_told_what_it_missed(self):
        write_tiny(self.dir / "data/digits")
        reading, writing = self.full_pipe()
        child = subprocess.Popen([PROGRAM, "train", "--batch", "8", "--epochs", "4000", "--parallel", "none", "--out", "run"], cwd=self.dir,
                                 env={**os.environ, "RINGGRAD_DATA_DIR": "data", "RINGGRAD_TIMEOUT": "2"}, stdout=writing, stderr=subprocess.PIPE, text=True)
        os.close(writing)
        self.addCleanup(child.kill)
        while "nobody reads" not in child.stderr.readline():
            self.assertIsNone(child.poll())
        lines = lambda: (self.dir / "run/metrics.jsonl").read_text().count("\n")
        before = lines()
        while lines() < before + 5:
            time.sleep(0.01)
        text = b""
        while b"were dropped)" not in text:
            text += os.read(reading, 65536)
        child.send_signal(signal.SIGTERM)
        os.close(reading)
        child.communicate(timeout=60)
        self.assertEqual(child.returncode, 128 + signal.SIGTERM)

    def test_errors_are_passed_on_while_the_output_waits_for_its_reader(self):
        reading, writing = self.full_pipe()
        words = "case $RANK in 0) exec sleep 60;; 1) exec yes;; esac; sleep 1; while echo heard >&2; do sleep 0.1; done"
        child = subprocess.Popen([PROGRAM, "launch", "-n", "3", "--", "sh", "-c", words], stdout=writing, stderr=subprocess.PIPE,
                                 env={**os.environ, "RINGGRAD_TIMEOUT": "300"})
        os.close(writing)
        self.addCleanup(child.kill)
        said = b""
        while b"heard" not in said:
            self.assertTrue(select.select([child.stderr], [], [], 30)[0], said)
            said += os.read(child.stderr.fileno(), 4096)
        child.send_signal(signal.SIGINT)
        os.close(reading)
        child.communicate(timeout=60)
        self.assertEqual(child.returncode, 128 + signal.SIGINT)

    # ---- signals -----------------------------------------------------------------------------------------------------

    def test_a_signal_to_one_machine_ends_all_with_a_code(self):
        """Machines are two launchers here. Whichever hears of it, both end alike, and the run is saved."""
        write_tiny(self.dir / "data/digits")
        commands = [["train", "--batch", "8", "--epochs", "5000", "--out", "run"], ["gan", "--batch", "8", "--epochs", "5000", "--out", "run"]]
        for words in commands:
            for told in (0, 1):
                with self.subTest(words=words[0], told=told):
                    with socket.socket() as free:
                        free.bind(("127.0.0.1", 0))
                        port = str(free.getsockname()[1])
                    machines = [subprocess.Popen([PROGRAM, "launch", "-n", "2", "--nnodes", "2", "--node-rank", str(rank), "--master-addr", "127.0.0.1",
                                                  "--master-port", port, "--", PROGRAM, *words], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                                 env={**os.environ, "RINGGRAD_DATA_DIR": "data", "RINGGRAD_SECRET": "of this test alone"}) for rank in (0, 1)]
                    for machine in machines:
                        self.addCleanup(machine.kill)
                    self.wait_for("run/checkpoint.safetensors")
                    machines[told].send_signal(signal.SIGTERM)
                    said = [machine.communicate(timeout=60) for machine in machines]
                    self.assertEqual([machine.returncode for machine in machines], [128 + signal.SIGTERM] * 2, said)
                    self.assertIn("resume", said[0][0] + said[0][1])
                    shutil.rmtree(self.dir / "run")

    def test_ctrl_z_stops_the_ranks_and_fg_goes_on(self):
        """For longer than the timeout."""
        write_tiny(self.dir / "data/digits")
        child = subprocess.Popen([PROGRAM, "train", "--batch", "8", "--epochs", "5000", "--ranks", "2", "--out", "run"], cwd=self.dir,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 env={**os.environ, "RINGGRAD_DATA_DIR": "data", "RINGGRAD_TIMEOUT": "2"})
        self.addCleanup(child.kill)
        self.wait_for("run/metrics.jsonl")
        ranks = self.children(child, 2)
        lines = lambda: (self.dir / "run/metrics.jsonl").read_text().count("\n")
        for _ in range(2):
            child.send_signal(signal.SIGTSTP)
            self.wait_until_stopped([child.pid, *ranks])
            before = lines()
            time.sleep(3)
            self.assertEqual(lines(), before)
            child.send_signal(signal.SIGCONT)
            while lines() <= before:
                self.assertIsNone(child.poll())
                time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
        self.assertEqual(child.returncode, 130, out + err)
        self.assertNotIn("timeout", out + err)

    # ---- ranks that are stopped ------------------------------------------------------------------------------------

    def test_stopped_ranks_hear_of_a_signal(self):
        child = self.launch("sh", "-c", "kill -STOP $$; sleep 600")
        self.wait_until_stopped(self.children(child, 2))
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(timeout=60), 128 + signal.SIGTERM)

    def test_ranks_that_are_all_stopped_end_at_the_timeout(self):
        child = self.launch("sh", "-c", "kill -STOP $$; sleep 600", stderr=subprocess.PIPE, RINGGRAD_TIMEOUT="0.3")
        said = child.communicate(timeout=60)[1].decode()
        self.assertEqual(child.returncode, 6, said)
        self.assertIn("all ranks were stopped for 0.3", said)

    def test_ranks_that_do_not_end_are_killed_after_the_timeout(self):
        child = self.launch("sh", "-c", "trap '' TERM; kill -STOP $$; sleep 600", RINGGRAD_TIMEOUT="2")
        self.wait_until_stopped(self.children(child, 2))
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(timeout=60), 128 + signal.SIGTERM)

    # ---- the environment -------------------------------------------------------------------------------------------

    def test_empty_variables_count_as_unset(self):
        empty = {"RINGGRAD_SECRET": "", "RINGGRAD_THREADS": "", "OMP_NUM_THREADS": ""}
        said = 'echo "${#RINGGRAD_SECRET} ${RINGGRAD_THREADS:-none} ${OMP_NUM_THREADS:-none}"'
        said = self.run_program("launch", "-n", "1", "--", "sh", "-c", said, env=empty).stdout.split()
        self.assertEqual(said[0], "64")
        self.assertNotIn("none", said)
        machines = ["launch", "-n", "1", "--nnodes", "2", "--master-addr", "node1", "--master-port", "29400"]
        self.assertIn("need a secret", self.run_program(*machines, "--", "true", env=empty, code=2).stderr)
        self.run_program("train", "--data", "mnist", "--parallel", "none", env={"RINGGRAD_DEBUG": ""}, code=4)

    def test_two_ranks_with_one_number(self):
        write_tiny(self.dir / "data/digits")
        done = self.run_program("launch", "-n", "2", "--", "sh", "-c", f"RANK=0 exec {PROGRAM} train --batch 8", code=3)
        self.assertIn("the port is taken by", done.stderr)

    def test_a_world_of_nobody(self):
        done = self.run_program("train", env={"RANK": "0", "WORLD_SIZE": "0"}, code=2)
        self.assertIn("WORLD_SIZE=0, expected 1 to 100000", done.stderr)

    @unittest.skipUnless(SLOW_DISK.exists(), "sanitizers must be loaded first")
    def test_ranks_wait_longer_than_the_timeout_while_rank_0_saves(self):
        write_tiny(self.dir / "data/digits")
        env = {"RINGGRAD_DATA_DIR": "data", "LD_PRELOAD": str(SLOW_DISK), "SLOW_DISK_MS": "1500", "RINGGRAD_TIMEOUT": "1",
               "RINGGRAD_RENDEZVOUS_TIMEOUT": "60"}
        self.run_program("train", "--batch", "8", "--ranks", "2", "--max-steps", "1", "--out", "run", env=env)
        self.assertTrue((self.dir / "run/model.safetensors").exists())

    def test_surroundings_that_cannot_be_are_mistakes_of_usage(self):
        two = {"RANK": "0", "WORLD_SIZE": "2"}
        for env, said in (({"RANK": "x"}, "RANK='x', expected a number"), ({"RANK": "5", "WORLD_SIZE": "2"}, "does not exist"),
                          ({**two, "LOCAL_WORLD_SIZE": "0"}, "of 0 on this machine"),
                          ({**two, "LOCAL_WORLD_SIZE": "3"}, "of 3 on this machine, of 2 in all"),
                          ({**two, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "1"}, "rank 1 of 1 on this machine"),
                          ({**two, "MASTER_PORT": "99999"}, "expected 1 to 65534"),
                          ({**two, "LOCAL_WORLD_SIZE": "1"}, "set MASTER_ADDR"),
                          ({**two, "MASTER_ADDR": "203.0.113.9"}, "needs a secret"),
                          ({**two, "RINGGRAD_SECRET_FILE": "no-such-file"}, "No such file"),
                          ({**two, "RINGGRAD_SECRET": "short"}, "can be guessed"),
                          ({**two, "RINGGRAD_RENDEZVOUS_TIMEOUT": "soon"}, "expected seconds"),
                          ({**two, "RINGGRAD_TRANSPORT": "pigeon"}, "expected auto, shm or tcp"),
                          ({**two, "RINGGRAD_BACKEND": "pigeon"}, "expected ring, mpi, nccl")):
            write_tiny(self.dir / "data/digits")
            self.assertIn(said, self.run_program("train", "--batch", "8", env={"RINGGRAD_DATA_DIR": "data", **env}, code=2).stderr)
        self.assertIn("does not have that address", self.run_program("launch", "-n", "2", "--master-addr", "203.0.113.9", "--",
                                                                      "true", env={"RINGGRAD_SECRET": "s"}, code=2).stderr)
        self.assertIn("cannot find host", self.run_program("train", "--batch", "8", code=3, env={
            **two, "RINGGRAD_DATA_DIR": "data", "MASTER_ADDR": "x" * 64, "RINGGRAD_SECRET": "of 16 characters",
            "RINGGRAD_RENDEZVOUS_TIMEOUT": "0.1"}).stderr)

    def test_a_rank_with_another_secret_is_out_of_step(self):
        write_tiny(self.dir / "data/digits")
        words = '[ $RANK = 0 ] || export RINGGRAD_SECRET=another-and-long-enough; exec "$0" train --batch 8'
        done = self.run_program("launch", "-n", "2", "--", "sh", "-c", words, PROGRAM, env={"RINGGRAD_DATA_DIR": "data"}, code=6)
        self.assertIn("does not know this job's secret", done.stderr)

    def test_one_rank_of_a_launcher(self):
        write_tiny(self.dir / "data/digits")
        one = {"RANK": "0", "WORLD_SIZE": "1", "RINGGRAD_DATA_DIR": "data"}
        words = ["train", "--batch", "8", "--max-steps", "1", "--out"]
        self.assertIn("this is one of 1 rank", self.run_program(*words, "four", "--ranks", "4", env=one, code=2).stderr)
        self.assertIn("DataParallel, 2 replicas", self.run_program(*words, "dp", "--parallel", "dp", env=one).stderr)
        self.assertNotIn(" ranks", self.run_program(*words, "none", "--parallel", "none", env=one).stderr)

    def test_what_a_rank_starts_says_its_own_errors(self):
        script = '"$0" inspect no-such-file; echo went on'
        done = self.run_program("launch", "-n", "1", "--", "sh", "-c", script, PROGRAM)
        self.assertIn("there is no no-such-file", done.stderr)
        self.assertIn("went on", done.stdout)

    def test_errors_of_each_rank_arrive_while_it_runs(self):
        child = self.launch("sh", "-c", "echo here >&2; exec sleep 60", stderr=subprocess.PIPE)
        watchdog = threading.Timer(30, child.kill)
        watchdog.start()
        heard = list(itertools.islice((line for line in child.stderr if b"here" in line), 2))
        child.terminate()
        child.communicate()
        watchdog.cancel()
        self.assertEqual(len(heard), 2)

    def test_a_run_that_somebody_elses_ranks_failed_to_begin_is_cleared_away(self):
        write_tiny(self.dir / "data/digits")
        done = self.run_program("launch", "-n", "2", "--", PROGRAM, "train", "--batch", "8", "--lr", "1e30", cwd=self.dir,
                                env={"RINGGRAD_DATA_DIR": "data"}, code=1)
        self.assertEqual(list((self.dir / "runs").glob("*")), [], done.stderr)

    def test_a_quiet_job_says_how_it_ended(self):
        write_tiny(self.dir / "data/digits")
        done = self.run_program("-q", "train", "--batch", "8", "--ranks", "2", "--lr", "1e30",
                                env={"RINGGRAD_DATA_DIR": "data"}, code=1)
        self.assertIn("ringgrad: failed (exit 1", done.stderr)

    def test_too_few_descriptors(self):
        done = self.shell('ulimit -n 20; exec "$0" launch -n 16 -- true', code=3)
        self.assertIn("Too many open files", done.stderr)
        self.assertIn("ulimit -n", done.stderr)

    def test_limits_are_named(self):
        def limited(said, kind, soft, *words, code=3, **env):
            limit = lambda: resource.setrlimit(kind, (soft, resource.RLIM_INFINITY if kind != resource.RLIMIT_NOFILE else soft))
            env = {"RINGGRAD_DATA_DIR": "data", **env}
            self.assertIn(said, self.run_program(*words, env=env, preexec_fn=limit, code=code).stderr)
        write_tiny(self.dir / "data/digits")
        limited("ulimit -s", resource.RLIMIT_STACK, 128 << 10, "train")
        for ranks, files in (("1", 4), ("2", 12)):
            limited("ulimit -n", resource.RLIMIT_NOFILE, files, "train", "--batch", "8", "--ranks", ranks)
        with open(self.dir / "large", "wb") as file:  # 40 MB, of which nothing is on the disk
            file.write(bytes([0, 0, 8, 1]) + (40_000_000).to_bytes(4, "big"))
            file.truncate(8 + 40_000_000)
        limited(": no memory is left, in start-up", resource.RLIMIT_AS, 600 << 20, "inspect", "large", code=7,
                OMP_NUM_THREADS="1", RINGGRAD_THREADS="1")
        for name, side in (("a/huge", 16000), ("a/small", 2), ("b/1", 2), ("b/2", 2)):
            (self.dir / "pets" / name).parent.mkdir(parents=True, exist_ok=True)
            with open(self.dir / f"pets/{name}.ppm", "wb") as file:
                file.write(b"P6\n%d %d\n255\n" % (side, side))
                file.truncate(file.tell() + 3 * side * side)
        for words in (["data", "check", "pets"], ["train", "--data", "pets"]):
            limited("pets/a/huge.ppm is too large for the memory that is left", resource.RLIMIT_AS, 600 << 20, *words, code=7,
                    OMP_NUM_THREADS="1", RINGGRAD_THREADS="1")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
