#!/usr/bin/env python3
"""`ringgrad` on several ranks, and what starts and measures them: program_ranks_test.py PATH_TO_RINGGRAD [test names].
"""

import json, os, pathlib, shutil, signal, socket, struct, subprocess, sys, time, unittest

from program_case import PROGRAM, DigitsCase, change_memory, rewrite_safetensors, sha256, write_idx, write_tiny


class SeveralRanks(DigitsCase):
    def test_ranks_do_what_one_rank_does(self):
        # 12,000 images in batches of 5,999: the third one has 2, so that of 7 ranks 5 have none. LeNet has no batch norm.
        common = ["--model", "lenet", "--batch", "5999", "--epochs", "1", "--json"]
        alone = json.loads(self.run_program("train", *common, "--parallel", "none", "--out", "1").stdout)
        done = self.run_program("train", *common, "--ranks", "7", "--out", "7", env={"RINGGRAD_THREADS": "1"})
        several = json.loads(done.stdout)
        self.assertIn("parameters bit-identical on 7 of 7 ranks", done.stderr)
        self.assertEqual(several["steps"], 3)
        self.assertAlmostEqual(several["test_loss"], alone["test_loss"], delta=1e-4)

    def test_methods_agree(self):
        def loss(*words):
            words = ["--batch", "64", "--max-steps", "8", "--out", words[-1].strip("-"), *words]
            return json.loads(self.run_program("train", *words, "--json").stdout)["test_loss"]
        alone = loss("--parallel", "none")
        self.assertAlmostEqual(loss("--ranks", "2", "--sync-bn"), alone, delta=1e-3)
        lenet = loss("--model", "lenet", "--parallel", "none", "--seed", "4")
        self.assertAlmostEqual(loss("--model", "lenet", "--ranks", "2", "--seed", "4", "--parallel", "dp"), lenet, delta=1e-4)

    def test_transports_give_the_same_bytes(self):
        for transport in ("shm", "tcp"):
            done = self.short_run(transport, 6, "--ranks", "2", "--transport", transport)
            self.assertIn("ring over tcp" if transport == "tcp" else "shared memory", done.stderr)
        self.assertEqual(sha256(self.dir / "shm/model.safetensors"), sha256(self.dir / "tcp/model.safetensors"))
        self.run_program("train", "--transport", "carrier-pigeon", code=2)
        self.run_program("train", "--checksums", "some", code=2)
        self.short_run("checked", 6, "--ranks", "2", "--transport", "tcp", "--checksums", "on")

    def test_resume_is_bit_exact_on_a_ring(self):
        write_tiny(self.dir / "tiny/digits")  # a ring of three sums in another order where the buckets are others
        common = ["--model", "resnet20b", "--batch", "6", "--ranks", "3", "--transport", "tcp", "--data-dir", "tiny"]
        self.run_program("train", *common, "--out", "whole", "--max-steps", "4")
        self.run_program("train", *common, "--out", "parts", "--max-steps", "2")
        done = self.run_program("train", "--resume", "parts", "--max-steps", "2")  # the transport is the run's
        self.assertIn("ring over tcp", done.stderr)
        self.assertEqual(*(sha256(self.dir / out / "model.safetensors") for out in ("whole", "parts")))
        done = self.run_program("train", "--resume", "parts", "--transport", "shm", "--max-steps", "1")
        self.assertIn("--backend ring --transport tcp --device cpu; from here on --parallel ddp --ranks 3 --backend ring --transport shm", done.stderr)

    def test_resume_takes_the_backend_from_the_run(self):
        write_tiny(self.dir / "tiny/digits")
        self.run_program("train", "--batch", "6", "--ranks", "2", "--data-dir", "tiny", "--out", "run", "--max-steps", "1")
        config = self.dir / "run/config.json"
        saved = json.loads(config.read_text())
        self.assertEqual(saved["division"]["backend"], "ring")
        saved["division"]["backend"] = "nccl"  # as if it had begun with another one, that cannot be on a CPU
        config.write_text(json.dumps(saved))
        self.assertIn("backend nccl does not go with", self.run_program("train", "--resume", "run", code=4).stderr)
        saved["division"]["backend"] = "mpi"
        config.write_text(json.dumps(saved))
        done = self.run_program("train", "--resume", "run", "--backend", "ring", "--max-steps", "1")
        self.assertRegex(done.stderr, r"note    the run began with .+ --backend mpi .+; from here on .+ --backend ring .+\n")
        del saved["division"]["backend"]  # as versions before this one wrote it
        config.write_text(json.dumps(saved))
        self.assertNotIn("note", self.run_program("train", "--resume", "run", "--max-steps", "1").stderr)

    def test_resume_restores_every_rank_s_random_numbers(self):
        write_tiny(self.dir / "tiny/digits")
        self.run_program("train", "--batch", "6", "--ranks", "3", "--data-dir", "tiny", "--out", "run",
                         "--max-steps", "1")
        checkpoint = self.dir / "run/checkpoint.safetensors"
        def generators():
            saved = json.loads(self.run_program("inspect", checkpoint, "--json").stdout)
            return json.loads(saved["metadata"]["progress"])["generators"]
        self.assertEqual(generators()[2::2], [2, 3])  # seeds; rank 0's has drawn the weights
        used = [*generators()[:2], 7, 40, 8, 30]  # as if dropout had drawn from the others', too
        rewrite_safetensors(checkpoint, generators=used)
        self.run_program("train", "--resume", "run", "--max-steps", "1")
        self.assertEqual(generators(), used)
        rewrite_safetensors(checkpoint, generators=[])  # as versions before this one wrote it
        self.run_program("train", "--resume", "run", "--max-steps", "1")
        rewrite_safetensors(checkpoint, generators=[1, 2])
        self.assertIn("expected 2 for each of 3 ranks", self.run_program("train", "--resume", "run", code=4).stderr)

    def test_accumulated_batches_are_one_large_one(self):
        # 57 images in steps of 24: the last one has 9, of which rank 0 has five, in two passes, and rank 1 four, in one.
        write_tiny(self.dir / "tiny/digits", train=57)
        def loss(out, *words):
            done = self.run_program("train", "--model", "lenet", "--epochs", "2", "--data-dir", "tiny", "--out", out, "--json", *words)
            self.assertIn(f"batch   24{' = ' * (out != 'whole')}{out if out != 'whole' else ''} · 3 steps an epoch", done.stderr)
            said = json.loads(done.stdout)
            self.assertEqual((said["steps"], said["batch"]), (6, 24))
            return said["test_loss"]
        whole = loss("whole", "--batch", "24", "--parallel", "none")
        self.assertAlmostEqual(loss("3 × 4 × 2 ranks", "--batch", "8", "--accumulate", "3", "--ranks", "2"), whole, delta=1e-5)
        self.assertAlmostEqual(loss("3 × 8", "--batch", "8", "--accumulate", "3", "--parallel", "none"), whole, delta=1e-5)

    def test_resume_amid_accumulated_batches(self):
        write_tiny(self.dir / "tiny/digits", train=57)
        common = ["--batch", "8", "--accumulate", "3", "--ranks", "2", "--data-dir", "tiny"]
        self.run_program("train", *common, "--out", "whole", "--max-steps", "5")
        self.run_program("train", *common, "--out", "parts", "--max-steps", "2")
        self.run_program("train", "--resume", "parts", "--max-steps", "3")
        self.assertEqual(*(sha256(self.dir / out / "model.safetensors") for out in ("whole", "parts")))
        config = self.dir / "whole/config.json"  # as versions before this one wrote it
        older = json.loads(config.read_text())
        del older["recipe"]["accumulate"]
        config.write_text(json.dumps(older))
        self.assertIn("its accumulate is 3, the run's is 1", self.run_program("train", "--resume", "whole", code=4).stderr)

    def test_resume_goes_on_as_the_run_was_divided(self):
        write_tiny(self.dir / "tiny/digits")
        common = ["--batch", "8", "--epochs", "1", "--data-dir", "tiny"]
        synchronized = [*common, "--ranks", "2", "--sync-bn"]
        self.run_program("train", *synchronized, "--out", "whole", "--max-steps", "4")
        self.run_program("train", *synchronized, "--out", "parts", "--max-steps", "2")
        done = self.run_program("train", "--resume", "parts", "--max-steps", "2")
        self.assertNotIn("the run began", done.stderr)
        self.assertEqual(*(sha256(self.dir / out / "model.safetensors") for out in ("whole", "parts")))
        self.assertIn("note    the run began with --parallel ddp --ranks 2 --backend ring --transport auto --sync-bn --device cpu; "
                      "from here on --parallel none --ranks 1 --device cpu",
                      self.run_program("train", "--resume", "parts", "--parallel", "none", "--max-steps", "1").stderr)
        self.run_program("train", *common, "--parallel", "none", "--out", "alone", "--max-steps", "3")
        self.assertNotIn("DDP", self.run_program("train", "--resume", "alone", "--max-steps", "1").stderr)
        done = self.run_program("train", "--resume", "alone", "--ranks", "2", "--max-steps", "1")
        self.assertIn("DDP, 2 ranks", done.stderr)

        config = self.dir / "alone/config.json"  # as versions before this one wrote it
        older = json.loads(config.read_text())
        del older["division"]
        config.write_text(json.dumps(older))
        self.run_program("train", "--resume", "alone", "--max-steps", "1")

    def test_resume_on_another_number_of_ranks(self):
        common = ["--batch", "96", "--epochs", "1", "--out", "run"]
        self.run_program("train", *common, "--ranks", "2", "--max-steps", "5")
        for ranks in ("3", "1", "2"):
            self.run_program("train", "--resume", "run", "--ranks", ranks, "--max-steps", "4")
        self.run_program("train", "--resume", "run", "--ranks", "2")  # fails unless each image was used exactly once
        evaluated = json.loads(self.run_program("eval", "run", "--json").stdout)
        self.assertEqual(evaluated["total"], 2000)

    def test_ranks_that_cannot_be(self):
        done = self.run_program("train", "--batch", "100", "--ranks", "3", code=2)
        self.assertIn("100 does not divide by 3 ranks. Try 99 or 102.", done.stderr)
        self.assertIn("Did you mean 'ddp'?", self.run_program("train", "--parallel", "dddp", code=2).stderr)
        self.run_program("train", "--parallel", "none", "--ranks", "2", code=2)

    def test_a_killed_rank_is_named_with_the_last_checkpoint(self):
        child = self.start("train", "--batch", "32", "--epochs", "50", "--ranks", "2", "--save-every", "5", "--out", "run")
        self.wait_for("run/checkpoint.safetensors")
        ranks = pathlib.Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        os.kill(int(ranks[1]), signal.SIGKILL)
        out, err = child.communicate(timeout=60)
        self.assertEqual(child.returncode, 5, err)
        self.assertIn("[rank 1] was killed by signal 9", err)
        self.assertIn("last checkpoint: run/checkpoint.safetensors", err)
        self.assertIn("rank 1", json.loads((self.dir / "run/metrics.jsonl").read_text().splitlines()[-1])["failed"])
        self.assertIn("the run failed", self.run_program("report", "run").stderr)
        self.assertNotIn("rank 0 died", err)
        self.run_program("train", "--resume", "run", "--max-steps", "3")

    def test_ranks_that_all_lack_the_data_say_so(self):
        done = self.run_program("train", "--data", "mnist", "--data-dir", "nowhere", "--ranks", "2", code=4)
        self.assertIn("ringgrad data get mnist", done.stderr)
        self.assertEqual(done.stderr.count("ringgrad data get mnist"), 1, done.stderr)  # not once per rank
        self.assertFalse((self.dir / "runs/0001-mnist-cnn").exists())

    def test_sync_bn_needs_an_image_on_every_rank(self):
        done = self.run_program("train", "--batch", "11998", "--ranks", "7", "--sync-bn", "--out", "run", code=2)
        self.assertIn("the last batch has 2 for 7 ranks", done.stderr)
        self.assertFalse((self.dir / "run").exists())

    def test_a_save_that_fails_names_itself_among_ranks(self):
        child = self.start("train", "--batch", "32", "--epochs", "50", "--ranks", "2", "--out", "run", "--save-every", "5")
        self.wait_for("run/checkpoint.safetensors")
        while (self.dir / "run").exists():  # a checkpoint may come in between
            shutil.rmtree(self.dir / "run", ignore_errors=True)
        out, err = child.communicate(timeout=60)
        self.assertEqual(child.returncode, 8, err)
        self.assertIn("failed (exit 8: disk or file system)", err)

    def test_a_damaged_checkpoint_among_ranks_is_not_recommended(self):
        self.short_run("run", 2, "--ranks", "2")
        checkpoint = self.dir / "run/checkpoint.safetensors"
        checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
        done = self.run_program("train", "--resume", "run", "--ranks", "2", code=4)
        self.assertNotIn("resume:", done.stderr)

    def test_an_interrupt_whose_save_fails_is_a_failure(self):
        child = self.start("train", "--batch", "32", "--epochs", "50", "--ranks", "2", "--log-every", "60", "--out", "run")
        while not (line := child.stderr.readline()).startswith("recipe"):
            self.assertNotEqual(line, "")
        self.wait_for("run/metrics.jsonl")  # signals are caught, and nothing is written for the next 60 steps
        shutil.rmtree(self.dir / "run")
        child.send_signal(signal.SIGINT)
        err = child.stderr.read()
        self.assertEqual(child.wait(timeout=60), 8, err)
        self.assertIn("run/checkpoint.safetensors", err)
        for pipe in (child.stdout, child.stderr):
            pipe.close()

    def test_an_early_interrupt_leaves_the_directory_free(self):
        for ranks in ("1", "2"):
            child = self.start("train", "--batch", "32", "--ranks", ranks, "--out", "run")
            self.wait_for("run/config.json")
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=60)
            self.assertEqual(child.returncode, 130, err)
            # Nothing is left, or a checkpoint to go on from.
            self.assertEqual((self.dir / "run").exists(), (self.dir / "run/checkpoint.safetensors").exists(), err)
            shutil.rmtree(self.dir / "run", ignore_errors=True)

    def test_evaluation_can_be_interrupted(self):
        common = ["--data", "digits", "--model", "resnet20", "--batch", "32", "--max-steps", "1", "--save-every", "1", "--out"]
        for ranks in ("1", "2"):
            child = self.start("train", *common, ranks, "--ranks", ranks)
            self.wait_for(ranks + "/checkpoint.safetensors")
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=60)
            self.assertEqual(child.returncode, 130, err)
            self.assertIn("--resume " + ranks, out + err)
            self.assertNotIn("test accuracy", out)

    def test_an_interrupted_rank_interrupts_the_job(self):
        child = self.start("train", "--batch", "32", "--epochs", "50", "--ranks", "2", "--save-every", "5", "--out", "run")
        self.wait_for("run/checkpoint.safetensors")
        ranks = pathlib.Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        os.kill(int(ranks[1]), signal.SIGTERM)
        out, err = child.communicate(timeout=60)
        self.assertEqual(child.returncode, 143, err)
        self.assertIn("--resume run", out + err)

    def test_nohup(self):
        for ranks in ("1", "2"):
            child = self.start("train", "--batch", "32", "--ranks", ranks, "--save-every", "5", "--max-steps", "100", "--out", ranks,
                               preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
            self.wait_for(ranks + "/checkpoint.safetensors")
            children = pathlib.Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
            for pid in (child.pid, *map(int, children)):
                os.kill(pid, signal.SIGHUP)
            out, err = child.communicate(timeout=60)
            self.assertEqual(child.returncode, 0, err)

    def test_a_launcher_starts_training_unchanged(self):
        done = self.run_program("launch", "-n", "3", "--", str(PROGRAM), "train", "--batch", "96", "--max-steps", "4",
                                "--out", "run")
        self.assertIn("parameters bit-identical on 3 of 3 ranks", done.stdout)

    def test_bench_ddp(self):
        document = json.loads(self.run_program("bench", "ddp", "--model", "lenet", "--batch", "8", "--seconds", "0.05",
                                               "--rounds", "1", "--force", "--json").stdout)
        rows = {row["row"]: row for row in document["rows"]}
        self.assertEqual(list(rows), ["none", "dp", "ddp_no_overlap", "ddp"])
        for row in rows.values():
            self.assertGreater(row["images_per_second"], 0)
        for row in ("dp", "ddp_no_overlap", "ddp"):
            self.assertGreater(rows[row]["kept_of_no_communication"], 0)
            self.assertEqual(len(rows[row]["memory_bytes"]), 2)
            self.assertGreater(rows[row]["moved_bytes"], 0)
        self.assertEqual(sorted(document["max_difference"]), ["dp_ddp", "none_ddp", "none_dp", "steps"])
        for pair in ("none_dp", "none_ddp", "dp_ddp"):
            self.assertLess(document["max_difference"][pair], 1e-6)
        self.run_program("bench", "ddp", "--ranks", "3", "--force", code=2)
        self.run_program("bench", "ddp", "--model", "nosuch", "--force", code=2)
        self.run_program("bench", "ddp", "--ranks", "64", "--batch", "64", code=2)

    def test_trace(self):
        common = ["trace", "--batch", "6", "--steps", "3"]
        document = json.loads(self.run_program(*common, "--ranks", "3", "--json").stdout)
        self.assertEqual((document["ranks"], document["step"]), (3, 2))
        self.assertLessEqual(document["hidden_ms"], document["communication_ms"])
        self.assertLess(document["backward_ms"], document["averaged_ms"])
        buckets = document["buckets"]
        self.assertEqual(len(buckets), 7)  # 1.1 MB, of at most 0.25 MB each
        self.assertTrue(buckets[0]["parameters"].startswith("fc."), buckets[0])
        for before, bucket in zip([buckets[0], *buckets], buckets):
            self.assertLessEqual(bucket["ready_ms"], bucket["launched_ms"])
            self.assertLessEqual(bucket["launched_ms"], bucket["completed_ms"])
            self.assertLessEqual(before["launched_ms"], bucket["launched_ms"])
        self.assertLess(buckets[0]["launched_ms"], document["backward_ms"])
        self.assertGreaterEqual(buckets[-1]["launched_ms"], document["backward_ms"])

        lines = self.run_program("launch", "-n", "2", "--", str(PROGRAM), *common, "--bucket-mb", "0").stdout.splitlines()
        self.assertTrue(lines[0].startswith("resnet20 · batch 6 on 2 ranks (shared memory) · step 2"), lines[0])
        backward, *bars = [line for line in lines if "┤" in line or "█" in line]
        self.assertEqual(len(bars), 2)
        for line in (backward, *bars):
            self.assertLessEqual(len(line), 80)
        self.assertLess(bars[0].index("█"), backward.index("┤"))
        self.assertGreaterEqual(bars[1].index("█"), backward.index("┤"))

        self.assertIn("nobody to average", self.run_program("trace", "--ranks", "1", code=2).stderr)
        self.assertIn("Try 6 or 9", self.run_program("trace", "--ranks", "3", "--batch", "8", code=2).stderr)
        self.assertIn("Example", self.run_program("trace", "--help").stdout)

    def test_launch_gives_ranks_and_names_the_one_that_fails(self):
        done = self.run_program("launch", "-n", "2", "--log-dir", "logs", "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE")
        self.assertEqual(sorted(done.stdout.splitlines()), ["[rank 1] rank 1 of 2", "rank 0 of 2"])
        self.assertEqual((self.dir / "logs/rank1.log").read_text(), "rank 1 of 2\n")
        done = self.run_program("launch", "-n", "2", "--", "sh", "-c", "[ $RANK = 0 ] || kill -9 $$; sleep 60", code=5)
        self.assertTrue(done.stderr.startswith("[rank 1] was killed by signal 9 (Killed)"), done.stderr)
        self.assertIn("failed (exit 5: a rank died)", done.stderr)
        done = self.run_program("launch", "-n", "3", "--", "sh", "-c", "exit 7", code=7)
        self.assertTrue(done.stderr.endswith("ringgrad: failed (exit 7)\n"), done.stderr)  # another program's own meaning

    def test_ranks_that_flood_their_output_can_be_interrupted(self):
        child = subprocess.Popen([PROGRAM, "launch", "-n", "2", "--", "yes"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        child.stdout.read(1)  # the ranks run
        time.sleep(0.5)  # for the pipe, which nobody reads on, to fill up
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.wait(timeout=30), 130)
        for pipe in (child.stdout, child.stderr):
            pipe.close()

    def test_launched_ranks_are_not_divided_again(self):
        for words in (["--parallel", "none"], ["--parallel", "dp"], ["--ranks", "3"]):
            done = self.run_program("launch", "-n", "2", "--", str(PROGRAM), "train", *words, code=2)
            self.assertIn("this is one of 2 ranks, as RANK says", done.stderr)

    def test_launched_ranks_are_told_the_same(self):
        for option, values, said in (("--seed", "12", "--seed 2 there, --seed 1 on rank 0"),
                                     ("--save-every", "12", "--save-every 2 there, --save-every 1 on rank 0"),
                                     ("--max-steps", "12", "--max-steps 2 there, --max-steps 1 on rank 0"),
                                     ("--lr", "12", "lr 2.0 there, lr 1.0 on rank 0")):
            words = f'[ $RANK = 0 ] && value={values[0]} || value={values[1]}; exec "$0" train {option} $value --out run'
            error = self.run_program("launch", "-n", "2", "--", "sh", "-c", words, PROGRAM, code=6).stderr
            self.assertIn(f"rank 1 has another recipe than rank 0: {said}", error)
            self.assertFalse((self.dir / "run").exists())

    def test_ranks_with_other_data_of_the_same_size_are_named(self):
        for folder, mirrored in (("a", False), ("b", True)):
            write_tiny(self.dir / folder / "digits")
            if mirrored:
                write_idx(self.dir / folder / "digits/train-labels-idx1-ubyte", 48, element=lambda i: 9 - i % 10)
        words = '[ $RANK = 0 ] && data=a || data=b; exec "$0" train --batch 8 --max-steps 1 --data-dir $data --out run'
        error = self.run_program("launch", "-n", "2", "--", "sh", "-c", words, PROGRAM, code=6).stderr
        self.assertRegex(error, r"rank 1 has another recipe than rank 0: 48 training images \((\w+)\) with labels \(\w+\) there, "
                                r"48 training images \(\1\) with labels \(\w+\) on rank 0")

    def test_ranks_with_other_weights_to_begin_with_are_named(self):
        for out, seed in (("a", "1"), ("b", "2")):
            self.run_program("train", "--parallel", "none", "--max-steps", "1", "--out", out, "--seed", seed)
        words = '[ $RANK = 0 ] && init=a || init=b; exec "$0" train --init $init --max-steps 2 --out run'
        error = self.run_program("launch", "-n", "2", "--", "sh", "-c", words, PROGRAM, code=6).stderr
        self.assertRegex(error, r"rank 1 has another set of weights to begin with than rank 0: \S+ with hash \d+ there")
        self.assertFalse((self.dir / "run").exists())

    def test_ranks_with_another_checkpoint_to_go_on_from_are_named(self):
        for out, seed in (("a", "1"), ("b", "2")):
            self.run_program("train", "--ranks", "2", "--max-steps", "2", "--out", out, "--seed", seed)
        (self.dir / "b/config.json").write_bytes((self.dir / "a/config.json").read_bytes())  # the same run, but for its checkpoint
        words = '[ $RANK = 0 ] && run=a || run=b; exec "$0" train --resume $run --max-steps 2'
        error = self.run_program("launch", "-n", "2", "--", "sh", "-c", words, PROGRAM, code=6).stderr
        self.assertRegex(error, r"rank 1 has another checkpoint than rank 0: \S+ with hash \d+ there")

    def test_what_the_ranks_do_not_agree_on_is_not_saved(self):
        # Steps so small that they change nothing, and then one weight of rank 1, as a fault of the memory would.
        child = self.start("train", "--batch", "2", "--ranks", "2", "--lr", "1e-30", "--save-every", "20", "--out", "run")
        self.wait_for("run/checkpoint.safetensors")
        data = (self.dir / "run/checkpoint.safetensors").read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        begin = 8 + length + json.loads(data[8 : 8 + length])["model.fc.weight"]["data_offsets"][0]
        rank = pathlib.Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()[1]
        change_memory(rank, data[begin : begin + 64])
        out, err = child.communicate(timeout=60)
        self.assertEqual(child.returncode, 6, err)
        self.assertIn("fc.weight differs from rank 0's on rank 1", err)
        saved = json.loads(self.run_program("inspect", "run/checkpoint.safetensors", "--json").stdout)
        self.assertLess(json.loads(saved["metadata"]["progress"])["step"], 6000)  # an epoch's, at whose end all is compared
        self.run_program("train", "--resume", "run", "--max-steps", "1")

    def test_launch_refuses_what_cannot_be(self):
        self.run_program("launch", "--", "true", code=2)
        self.run_program("launch", "-n", "2", "--nnodes", "2", "--node-rank", "2", "--", "true", code=2)
        machines = ["launch", "-n", "2", "--nnodes", "2", "--master-port", "29400"]
        self.assertIn("need --master-addr", self.run_program(*machines, "--", "true", code=2).stderr)
        self.assertIn("RINGGRAD_SECRET", self.run_program(*machines, "--master-addr", "node1", "--", "true", code=2).stderr)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            error = self.run_program("launch", "-n", "2", "--master-port", port, "--", "true", code=3).stderr
            self.assertRegex(error, rf"the port is taken by .+ \(process {os.getpid()}\)")

    def test_launch_names_a_program_that_does_not_exist(self):
        error = self.run_program("launch", "-n", "2", "--", "no-such-program", code=3).stderr
        self.assertIn("cannot execute 'no-such-program': No such file or directory", error)

    def test_backends_that_do_not_fit_the_device_are_refused(self):
        self.run_program("train", "--backend", "gloo", code=2)
        self.assertIn("connect GPUs", self.run_program("train", "--backend", "nccl-ring", code=2).stderr)

    def test_bench_allreduce_up_to_a_size(self):
        done = self.run_program("bench", "allreduce", "-e", "64K", "-n", "1", "-w", "0", "--json")
        self.assertEqual([row["bytes"] for row in json.loads(done.stdout)["rows"]], [1 << 10, 64 << 10])

    def test_bench_allreduce(self):
        for words in (["--transport", "shm"], ["--transport", "tcp"], ["--algorithm", "gather"], ["--algorithm", "segmented"]):
            done = self.run_program("bench", "allreduce", "-b", "8", "-e", "1M", "-f", "64", "-n", "3", *words, "--json")
            rows = json.loads(done.stdout)["rows"]
            self.assertEqual([row["bytes"] for row in rows], [8, 512, 32768])
            for row in rows:
                self.assertEqual(row["wrong"], 0)
                self.assertAlmostEqual(row["algbw_GBps"], row["bytes"] / row["time_us"] / 1e3)
        table = self.run_program("bench", "allreduce", "--ranks", "3", "-b", "1K", "-e", "1K", "-n", "3").stdout
        self.assertIn("# Out of bounds values : 0 OK", table)
        self.run_program("bench", "allreduce", "--algorithm", "tree", code=2)
        self.run_program("bench", "allreduce", "--transport", "pigeon", code=2)
        self.run_program("bench", "allreduce", "--transport", "tcp", "--algorithm", "shared", code=2)
        self.run_program("bench", "allreduce", "-b", "64", "-e", "8", code=2)
        self.run_program("bench", "allreduce", "--backend", "mpi", "--algorithm", "ring", code=2)
        self.run_program("bench", "allreduce", "--device", "cpu:7", code=3)
        self.run_program("bench", "allreduce", code=2, env={"RINGGRAD_TIMEOUT": "abc"})


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
