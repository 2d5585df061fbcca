#!/usr/bin/env python3
"""Drives the program `ringgrad` as a person would: program_test.py PATH_TO_RINGGRAD [test names].

Results go to stdout, everything else to stderr; a run that is stopped at any step and resumed ends with the same bytes as
one that was not.
"""

import array, json, os, pathlib, shutil, signal, struct, subprocess, sys, time, unittest

from program_case import PROGRAM, DigitsCase, sha256, write_tiny


def floats_of(path):
    """The float32 tensors of a safetensors file."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    bytes_of = lambda entry: data[8 + length + entry["data_offsets"][0] : 8 + length + entry["data_offsets"][1]]
    return {name: array.array("f", bytes_of(entry)) for name, entry in header.items() if entry["dtype"] == "F32"}


class Program(DigitsCase):
    # ---- data and checkpoints ----------------------------------------------------------------------------------------

    def test_missing_data_says_how_to_get_it(self):
        done = self.run_program("train", "--data", "mnist", "--data-dir", str(self.dir), code=4)
        self.assertIn("ringgrad data get mnist", done.stderr)

    def test_damaged_data_names_the_file(self):
        data = self.dir / "data"
        shutil.copytree(self.shared, data)
        images = next(data.rglob("train-images-idx3-ubyte"))
        images.write_bytes(images.read_bytes()[:1000])
        done = self.run_program("train", "--data-dir", str(data), code=4)
        self.assertIn("train-images-idx3-ubyte", done.stderr)

    def test_data_list_and_check(self):
        listed = json.loads(self.run_program("data", "list", "--json").stdout)
        self.assertIn("digits", json.dumps(listed))
        self.run_program("data", "check", "digits")

    def test_damaged_checkpoint_is_refused(self):
        self.short_run("run", 2)
        model = self.dir / "run/model.safetensors"
        whole = bytearray(model.read_bytes())
        whole[-100] ^= 1
        model.write_bytes(whole)
        self.assertIn("SHA-256", self.run_program("eval", "run/model.safetensors", "--model", "cnn", code=4).stderr)
        model.write_bytes(whole[:200])
        self.run_program("eval", "run/model.safetensors", "--model", "cnn", code=4)
        self.run_program("eval", "nothing.safetensors", code=4)

    def test_a_checkpoint_of_another_model_is_bad_data(self):
        self.short_run("run", 1)
        self.run_program("data", "make", "shapes")
        for words in (["--data", "shapes"], ["--model", "resnet20"]):
            done = self.run_program("eval", "run", *words, code=4)
            self.assertIn("run/model.safetensors does not fit", done.stderr)

    # ---- training ------------------------------------------------------------------------------------------------

    def test_json_is_one_document_and_the_run_is_complete(self):
        done = self.run_program("train", "--batch", "512", "--epochs", "1", "--out", "run", "--json")
        document = json.loads(done.stdout)
        for key in ("test_accuracy", "test_loss", "epochs", "seconds", "images_per_second", "waiting_for_data", "run"):
            self.assertIn(key, document)
        run = self.dir / "run"
        self.assertEqual(json.loads((run / "config.json").read_text())["recipe"]["batch"], 512)
        metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([line["test_accuracy"] for line in metrics], [document["test_accuracy"]])
        evaluated = json.loads(self.run_program("eval", "run", "--json").stdout)
        self.assertEqual(evaluated["accuracy"], document["test_accuracy"])
        self.assertEqual(evaluated["correct"] / evaluated["total"], evaluated["accuracy"])
        self.assertIn("loss", evaluated)

    def test_output_to_a_file_has_no_escapes(self):
        done = self.short_run("run", 3)
        self.assertNotIn("\033", done.stdout + done.stderr)
        self.assertNotIn("\r", done.stdout + done.stderr)

    def test_a_terminal_gets_a_table_of_80_columns(self):
        write_tiny(self.dir / "tiny/digits")
        shown = self.on_a_terminal("train", "--batch", "8", "--epochs", "2", "--data-dir", "tiny").splitlines()
        head = next(i for i, line in enumerate(shown) if line.split()[:2] == ["epoch", "loss"])
        self.assertEqual([line.split()[0] for line in shown[head : head + 3]], ["epoch", "1", "2"])
        self.assertLessEqual(max(len(line) for line in shown[head : head + 3]), 80)
        self.assertNotIn("hash=", "".join(shown))

    def test_same_seed_same_bytes_and_another_seed_others(self):
        for out, seed in (("a", "1"), ("b", "1"), ("c", "2")):
            self.short_run(out, 8, "--seed", seed)
        model = [sha256(self.dir / out / "model.safetensors") for out in "abc"]
        self.assertEqual(model[0], model[1])
        self.assertNotEqual(model[0], model[2])

    def test_threads_and_workers_do_not_change_the_result(self):
        common = ["--batch", "32", "--max-steps", "8", "--parallel", "none"]
        self.run_program("train", *common, "--out", "a", "--workers", "0", env={"RINGGRAD_THREADS": "1"})
        self.run_program("train", *common, "--out", "b", "--workers", "3", env={"RINGGRAD_THREADS": "3"})
        self.assertEqual(sha256(self.dir / "a/model.safetensors"), sha256(self.dir / "b/model.safetensors"))

    def test_resume_is_bit_exact(self):
        common = ["--batch", "512", "--epochs", "2", "--optimizer", "adam"]
        self.run_program("train", *common, "--out", "whole")
        for steps in ("5", "24"):  # in the middle of the first epoch, and at its end
            out = "part" + steps
            self.run_program("train", *common, "--out", out, "--max-steps", steps)
            self.run_program("train", "--resume", out)
            self.assertEqual(sha256(self.dir / "whole/model.safetensors"), sha256(self.dir / out / "model.safetensors"), out)

    def test_interrupt_saves_and_resumes(self):
        child = self.start("train", "--batch", "16", "--epochs", "50", "--log-every", "5", "--out", "run")
        self.wait_for("run/metrics.jsonl")  # it has done steps
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
        self.assertEqual(child.returncode, 130, err)
        self.assertIn("a second signal ends at once", err)
        self.assertIn("--resume run", out + err)
        self.run_program("train", "--resume", "run", "--max-steps", "3")

    def test_a_signal_that_comes_twice_is_one_order(self):
        for ranks in ("1", "2"):
            child = self.start("train", "--batch", "16", "--epochs", "50", "--ranks", ranks, "--save-every", "5", "--out", ranks)
            self.wait_for(ranks + "/checkpoint.safetensors")
            started = pathlib.Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split() if ranks == "2" else []
            for pid in [child.pid, *map(int, started), child.pid]:  # as timeout and systemd do
                os.kill(pid, signal.SIGTERM)
            out, err = child.communicate(timeout=60)
            self.assertEqual(child.returncode, 143, err)
            self.assertIn("stopped at step", out)

    def test_a_run_is_found_with_its_data(self):
        self.run_program("train", "--max-steps", "3", "--out", "run", "--data-dir", "here")  # a relative path
        (self.dir / "elsewhere").mkdir()
        for words in (["eval", "../run"], ["predict", "../run", "3"], ["train", "--resume", "../run", "--max-steps", "1"]):
            self.run_program(*words, cwd=self.dir / "elsewhere", env={"RINGGRAD_DATA_DIR": "/nonexistent"})

    def test_training_begins_with_given_weights(self):
        self.short_run("run", 30)
        first = json.loads(self.run_program("eval", "run", "--json").stdout)
        for ranks in ("1", "2"):
            began = json.loads(self.run_program("train", "--init", "run", "--ranks", ranks, "--lr", "1e-12", "--max-steps", "1",
                                                "--json").stdout)
            self.assertAlmostEqual(began["test_loss"], first["loss"], delta=0.01)  # batch norm's averages move
        self.run_program("train", "--init", "run", "--model", "lenet", code=4)

    def test_a_diverging_run_fails(self):
        done = self.run_program("train", "--lr", "1e30", "--schedule", "constant", "--batch", "32", code=1)
        self.assertIn("step", done.stderr)

    def test_full_disk_keeps_the_old_checkpoint(self):
        self.short_run("run", 2)
        before = sha256(self.dir / "run/checkpoint.safetensors")
        limited = f'ulimit -f 64; exec "{PROGRAM}" train --resume run --max-steps 1 --parallel none'
        done = subprocess.run(["sh", "-c", limited], capture_output=True, text=True, cwd=self.dir,
                              env={**os.environ, "RINGGRAD_DATA_DIR": self.shared})
        self.assertEqual(done.returncode, 8, done.stderr)
        self.assertEqual(before, sha256(self.dir / "run/checkpoint.safetensors"))
        self.assertEqual([], list((self.dir / "run").glob("*.tmp*")))

    def test_hints_name_the_program_as_it_was_called(self):
        nothing = {"RINGGRAD_DATA_DIR": "", "XDG_DATA_HOME": str(self.dir)}  # no MNIST there
        for env, called in (({}, str(PROGRAM)), ({"RINGGRAD_CALLED_AS": "./go"}, "./go")):
            done = self.run_program("train", "--batch", "512", "--max-steps", "1", "--out", pathlib.Path(called).name, env=env)
            self.assertIn(f"resume: {called} train --resume {pathlib.Path(called).name}", done.stdout)
            for words, said in ((["train", "--data", "mnist"], "data get mnist"), (["data", "make", "mnist"], "data get mnist"),
                                ([], "--help shows them")):
                done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, cwd=self.dir,
                                      env={**os.environ, **nothing, **env})
                self.assertIn(f"{called} {said}", done.stderr)

    # ---- the other commands ------------------------------------------------------------------------------------------

    def test_predict(self):
        self.short_run("run", 30)
        answer = json.loads(self.run_program("predict", "run", "7", "--json").stdout)
        self.assertAlmostEqual(sum(answer["probabilities"].values()), 1, places=4)
        (self.dir / "digit.pgm").write_bytes(b"P5\n28 28\n255\n" + bytes(28 * 28))
        self.run_program("predict", "run", "digit.pgm")
        (self.dir / "broken.pgm").write_bytes(b"P5\n28 28\n255\n" + bytes(100))
        self.run_program("predict", "run", "broken.pgm", code=4)
        self.run_program("predict", "run", "99999", code=2)

    def test_predict_sees_what_people_draw(self):
        # Black ink on white paper, three times as large and off the centre; and white on black, not inverted.
        self.short_run("run", 60)
        images = next(pathlib.Path(self.shared).rglob("t10k-images-idx3-ubyte")).read_bytes()[16:]
        same, width, height = 0, 200, 150
        for index in range(12):
            answer = json.loads(self.run_program("predict", "run", str(index), "--json").stdout)["prediction"]
            paper = 250 if index % 2 else 0
            pixels = bytearray([paper]) * (width * height)
            for y in range(84):
                for x in range(84):
                    ink = images[index * 784 + y // 3 * 28 + x // 3]
                    pixels[(y + 9) * width + x + 100] = abs(paper - ink) if ink < 250 else 250 - paper
            (self.dir / "drawn.pgm").write_bytes(b"P5\n200 150\n255\n" + bytes(pixels))
            done = self.run_program("predict", "run", "drawn.pgm", "--json")
            self.assertIn("inverted, cut out and centred" if paper else "note: cut out and centred", done.stderr)
            same += json.loads(done.stdout)["prediction"] == answer
        self.assertGreaterEqual(same, 10)

    def test_inspect(self):
        self.short_run("run", 2)
        document = json.loads(self.run_program("inspect", "run/model.safetensors", "--json").stdout)
        names = [tensor["name"] for tensor in document["tensors"]]
        self.assertIn("fc.weight", names)
        self.run_program("inspect", "run/model.safetensors", "--npy", "fc.weight", "--output", "w.npy")
        self.assertTrue((self.dir / "w.npy").read_bytes().startswith(b"\x93NUMPY"))
        images = next(pathlib.Path(self.shared).rglob("t10k-images-idx3-ubyte"))
        self.assertIn("28", self.run_program("inspect", str(images)).stdout)

    def test_graph(self):
        self.assertRegex(self.run_program("graph", "cnn").stdout, r"linear \[128, 10\] <- #\d+, fc.weight \[10, 1568\], fc.bias \[10\]")
        self.assertRegex(self.run_program("graph", "resnet20", "--batch", "2").stdout, r"batch_norm \+ residual \+ relu \[2, 64, 8, 8\] <- #\d+, ")
        self.assertIn('[shape=ellipse, label="fc.weight\\n[10, 1568]"]', self.run_program("graph", "cnn", "--dot").stdout)
        write_tiny(self.dir / "mnist")
        valued = self.run_program("graph", "cnn", "--values", "--data", "mnist", "--data-dir", ".", "--batch", "5").stdout
        self.assertRegex(valued, r"cross_entropy \[\] \(freed\) = [\d.]+, gradient 1 <- ")
        self.assertRegex(valued, r"\nfc.bias \[10\] = \S+ ± \S+, gradient \S+ ± \S+\n")
        self.assertIn("graph: a batch of 9999 images", self.run_program("graph", "--data", "mnist", "--data-dir", ".", "--batch", "9999", code=1).stderr)

    def test_bench_train(self):
        for dtype in ("fp32", "bf16"):
            document = json.loads(self.run_program("bench", "train", "--model", "cnn", "--batch", "4", "--dtype", dtype,
                                                   "--steps", "2", "--threads", "1", "--json").stdout)
            self.assertEqual((document["threads"], document["system_allocations"]), (1, 0))
            self.assertGreater(document["images_per_second"], 0)
            self.assertEqual(list(document["phases_ms"]), ["backward", "forward", "optimizer", "zero_grad"])
        profile = json.loads(self.run_program("bench", "train", "--model", "cnn", "--batch", "4", "--steps", "2", "--profile",
                                              "--json").stdout)["profile"]
        kernels = {row["kernel"]: row for row in profile["kernels"]}
        self.assertEqual((kernels["conv2d"]["calls"], kernels["conv2d_backward_input"]["calls"]), (2, 1))
        self.assertEqual(kernels["conv2d"]["operations"], kernels["conv2d_backward_weight"]["operations"])
        for row in profile["kernels"]:
            self.assertGreaterEqual(row["bound_ms"], max(row["operations_ms"], row["bytes_ms"]) * (1 - 1e-9))
        for name in ("conv2d", "batch_norm_max_pool", "sgd_step"):
            self.assertGreater(kernels[name]["bytes_ms"], 0)
        residual = json.loads(self.run_program("bench", "train", "--model", "resnet20", "--batch", "2", "--steps", "1", "--profile",
                                               "--json").stdout)["profile"]["kernels"]
        self.assertEqual([row["bytes"] for row in residual if row["kernel"] == "batch_norm"], [0])  # it calls other kernels
        phases = {row["phase"]: row for row in profile["phases"]}
        self.assertEqual(sorted(phases), ["backward", "forward", "optimizer", "zero_grad"])
        self.assertEqual(phases["forward"]["operations"], kernels["conv2d"]["operations"] + kernels["matmul"]["operations"] / 3)
        self.assertEqual(sum(row["calls"] for row in phases.values()), sum(row["calls"] for row in kernels.values()))
        self.assertIn("outside kernels", self.run_program("bench", "train", "--batch", "4", "--steps", "1", "--profile").stdout)
        self.run_program("bench", "train", "--dtype", "fp8", code=2)
        self.run_program("bench", "train", "--conv", "fft", code=2)
        self.run_program("bench", "train", "--provider", "best", code=2)
        self.run_program("bench", "train", "--batch", "2", "--steps", "1", "--warm-up", "0", "--provider", "fastest",
                         env={"RINGGRAD_CACHE_DIR": str(self.dir / "cache")})
        doctor = json.loads(self.run_program("doctor", "--json", env={"RINGGRAD_CACHE_DIR": str(self.dir / "cache")}).stdout)
        self.assertEqual(doctor["autotune"]["cpu:0"]["calls"] > 0, doctor["kernels"]["cpu_vendor"] > 0)
        self.assertEqual(doctor["kernels"]["cpu_reference"], doctor["kernels"]["cpu_native"])  # every kernel has one

    def test_reference_kernels_train_as_the_native_ones(self):
        after = {}
        for provider in ("native", "reference"):
            child = self.start("train", "--provider", provider, "--model", "lenet", "--parallel", "none", "--batch", "32",
                               "--epochs", "1", "--max-steps", "4", "--save-every", "4", "--out", provider)
            checkpoint = self.dir / provider / "checkpoint.safetensors"
            while not checkpoint.exists() and child.poll() is None:
                time.sleep(0.05)
            child.kill()  # the evaluation takes long
            _, errors = child.communicate()
            self.assertTrue(checkpoint.exists(), errors)
            after[provider] = floats_of(checkpoint)
        self.assertEqual(after["native"].keys(), after["reference"].keys())
        self.assertGreater(len(after["native"]), 10)
        for name in (name for name in after["native"] if not name.startswith("optim.")):
            native = after["native"][name]
            apart = max(abs(a - b) for a, b in zip(native, after["reference"][name]))
            largest = max(abs(a) for a in native)
            self.assertLessEqual(apart, 1e-4 * largest, name)  # float32, of sums of 25,000 terms, four steps long
        self.assertNotEqual(after["native"], after["reference"])  # the last digits tell that other kernels ran

    def test_instructions_that_are_not_here(self):
        done = self.run_program("bench", "train", env={"RINGGRAD_ISA": "v9"}, code=2)
        self.assertRegex(done.stderr, "RINGGRAD_ISA is 'v9', (expected one of|but this library's kernels are compiled for) ")
        isa = json.loads(self.run_program("doctor", "--json").stdout)["isa"]
        self.run_program("doctor", env={"RINGGRAD_ISA": isa})

    def test_bfloat16_and_algorithms_learn_alike(self):
        accuracy = {}
        for words in (["fp32", "auto"], ["fp32", "direct"], ["bf16", "winograd"], ["bf16", "direct"]):
            out = "-".join(words)
            done = self.run_program("train", "--batch", "256", "--epochs", "1", "--out", out, "--dtype", words[0], "--conv",
                                    words[1], "--json")
            self.assertEqual(json.loads((self.dir / out / "config.json").read_text())["recipe"]["conv"], words[1])
            accuracy[out] = json.loads(done.stdout)["test_accuracy"]
        self.assertGreater(min(accuracy.values()), 0.9, accuracy)
        self.assertLess(max(accuracy.values()) - min(accuracy.values()), 0.02, accuracy)

    def test_mixed_precision_resumes_bit_for_bit(self):
        for words in (["--amp", "O1"], ["--amp", "O2"], ["--amp", "O3", "--dtype", "bf16"]):
            whole, parts = "".join(words), "".join(words) + "-in-parts"
            self.short_run(whole, 6, "--parallel", "none", *words)
            self.short_run(parts, 3, "--parallel", "none", *words)
            self.run_program("train", "--resume", parts, "--parallel", "none", "--max-steps", "3")
            self.assertEqual(*(sha256(self.dir / out / "model.safetensors") for out in (whole, parts)), words)
        said = self.run_program("train", "--amp", "O0", "--dtype", "bf16", code=2).stderr
        self.assertIn("--amp O0 and --dtype bf16 exclude each other", said)

    def test_bench_ops(self):
        document = json.loads(self.run_program("bench", "ops", "--repetitions", "3", "--json").stdout)
        self.assertGreater(document["add_forward_backward_ns"], document["add_untracked_ns"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
