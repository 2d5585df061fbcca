#!/usr/bin/env python3
"""Tests the errors of `ringgrad`: program_errors_test.py PATH_TO_RINGGRAD [test names].

Each mistake has its exit code (--help lists them) and a message that names it; no crash, and nothing good overwritten."""

import json, os, re, resource, shutil, signal, socket, subprocess, sys, unittest

from program_case import PROGRAM, ProgramCase, change_tensor, rewrite_safetensors, write_idx, write_tiny


class Errors(ProgramCase):
    """Training is on a data set of a few images."""

    def setUp(self):
        super().setUp()
        write_tiny(self.dir / "data/digits")

    # A run of one process, `steps` steps of 8 of the 48 images.
    def tiny_run(self, *words, **options):
        return self.run_program("train", "--parallel", "none", "--batch", "8", *words, **options)

    def refused(self, said, *words, code=2, **options):
        done = self.run_program(*words, code=code, **options)
        self.assertIn(said, done.stderr)
        lines = done.stderr.splitlines()
        first = next(i for i, line in enumerate(lines) if line.startswith("ringgrad: "))
        self.assertLessEqual(len(lines) - first, 5)
        return done

    # ---- the command line ----------------------------------------------------------------------------------------

    def test_options_that_would_mean_nothing(self):
        self.refused("--backend is for ranks", "train", "--parallel", "none", "--backend", "ring")
        self.refused("--transport is for ranks", "train", "--parallel", "dp", "--transport", "tcp")
        self.refused("mnist", "data", "list", "mnist")
        self.refused("minbytes", "bench", "allreduce", "-f", "4")
        self.refused("no size from -b 0 to -e 512", "bench", "allreduce", "-e", "512")

    def test_misspelt_command_is_suggested(self):
        done = self.run_program("trian", code=2)
        self.assertIn("no command 'trian'. Did you mean 'train'?", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_misspelt_option_is_suggested(self):
        self.assertIn("Did you mean '--epochs'?", self.run_program("train", "--epoch", "1", code=2).stderr)
        self.assertIn("Did you mean '--label-smoothing'?", self.run_program("train", "--lable-smoothing=1", code=2).stderr)
        self.refused("Did you mean '--bucket-mb'?", "trace", "--bucket", "4")  # cut short
        self.refused("Did you mean '--lr'?", "train", "--learning-rate", "0.1")  # what its help says

    def test_words_that_are_missing(self):
        self.refused("bench: expected one of ddp, allreduce, ops, train", "bench")
        for words in (["help"], ["help", "train"]):
            self.assertIn("Usage", self.run_program(*words).stdout)
        self.assertIn("--epochs", self.run_program("help", "train").stdout)

    def test_misspelt_values_are_suggested(self):
        self.assertIn("Did you mean 'digits'?", self.run_program("train", "--data", "digit", code=2).stderr)
        self.assertIn("Did you mean 'resnet20'?", self.run_program("train", "--model", "resnt20", code=2).stderr)
        self.assertIn("Did you mean 'adam'?", self.run_program("train", "--optimizer", "adm", code=2).stderr)

    def test_values_out_of_range(self):
        for words in (["--batch", "0"], ["--lr", "-1"], ["--epochs", "0"], ["--label-smoothing", "1"], ["--workers", "-1"],
                      ["--batch", "x"], ["--device", "gpu"], ["--dtype", "fp31"], ["--seed", "-1"]):
            with self.subTest(words=words):
                done = self.run_program("train", *words, code=2)
                self.assertTrue(done.stderr.startswith("ringgrad: "), done.stderr)
                self.assertLessEqual(len(done.stderr.splitlines()), 5)

    def test_every_option_of_a_number_wants_one(self):
        """Tests all commands, as their help lists them."""
        commands = [[name] for name in re.findall(r"^  (\w+) ", self.run_program("--help").stdout.split("Subcommands:")[1], re.M)]
        seen = 0
        for command in commands:
            text = self.run_program(*command, "--help").stdout
            if "Subcommands:" in text:
                commands += [[*command, name] for name in re.findall(r"^  ([\w-]+) ", text.split("Subcommands:")[1].split("Examples")[0], re.M)]
            for line in text.splitlines():
                self.assertTrue(len(line) <= 80 or str(PROGRAM) in line, line)  # examples have its path
            needs = {"launch": ["-n", "1", "--", "true"], "predict": ["x", "y"], "compare": ["x", "y"], "lint": ["--", "true"]}.get(command[0], [])
            if command[0] in ("eval", "export", "inspect", "report", "watch"):
                needs = ["x"]
            for option in re.findall(r"^  (?:-\w,)?(--[\w-]+) (?:INT|UINT|FLOAT|NUMBER|POSITIVE|NONNEGATIVE)\b", text, re.M):
                for value in ("nan", "-inf", "1e400", ""):
                    with self.subTest(command=command, option=option, value=value):
                        done = self.run_program(*command, f"{option}={value}" if value else option, *([] if value else [""]), *needs, code=2)
                        self.assertIn(option, done.stderr)
                seen += 1
        self.assertGreater(seen, 50)
        for variable in ("RINGGRAD_TIMEOUT", "RINGGRAD_RENDEZVOUS_TIMEOUT"):
            for value in ("nan", "inf", "-1", "0", "1e300", "x"):
                self.assertIn(variable, self.run_program("data", "list", env={variable: value}, code=2).stderr)

    def test_no_cuda_device(self):
        if json.loads(self.run_program("doctor", "--json").stdout)["cuda_devices"] == 0:
            self.run_program("train", "--device", "cuda", code=3)

    def test_help_and_version(self):
        self.assertIn("Examples", self.run_program("--help").stdout)
        self.assertIn("--label-smoothing", self.run_program("train", "--help").stdout)
        self.assertIn("ringgrad 1.", self.run_program("--version").stdout)

    def test_numbers_without_bound(self):
        for option, value, said in (("--batch", "9223372036854775807", "1 to 1000000"),
                                    ("--epochs", "4611686018427387904", "1 to 1000000"),
                                    ("--warmup", "inf", "a number such as 0.5"), ("--warmup", "1e300", "0 to 1000000"),
                                    ("--weight-decay", "1e300", "0 to 1000"), ("--weight-decay", "nan", "a number such as 0.5"),
                                    ("--clip-norm", "-1", "zero (never) or more"), ("--lr", "inf", "a number such as 0.5")):
            with self.subTest(option=option, value=value):
                self.refused(said, "train", "--parallel", "none", option, value)

    def test_without_momentum_there_is_no_nesterov(self):
        for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
            file = self.dir / f"data/cifar10/{name}.bin"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(bytes(3073 * 2))
        words = ("train", "--data", "cifar10", "--parallel", "none", "--batch", "2", "--max-steps", "1")  # Nesterov by default
        self.refused("--nesterov with --momentum 0", *words, "--nesterov", "--momentum", "0")
        done = self.run_program(*words, "--momentum", "0")
        self.assertIn("momentum 0 (so no Nesterov)", done.stderr)

    def test_variables_that_are_no_numbers(self):
        for variable in ("RINGGRAD_THREADS", "RINGGRAD_CPU_DEVICES"):
            for value in ("abc", "4x", "0", "-1", "99999999999999999999"):
                self.refused(f"{variable} is '{value}'", "graph", "cnn", env={variable: value})
            self.run_program("graph", "cnn", env={variable: ""})

    def test_more_replicas_than_devices(self):
        self.refused("--ranks is 100, expected at most 64 with --parallel dp", "train", "--parallel", "dp", "--ranks", "100")

    def test_options_that_exclude_each_other(self):
        self.refused("onecycle, the default, warms up by itself", "train", "--warmup", "1")
        self.refused("adam has moments of its own", "train", "--optimizer", "adam", "--momentum", "0.5")
        self.refused("leave those options out", "train", "--resume", "run", "--init", "run")

    def test_what_is_decided_for_the_caller_is_said(self):
        done = self.run_program("train", "--batch", "9", "--max-steps", "1", env={"RINGGRAD_THREADS": "2"})
        self.assertIn("note    one process trains: a batch of 9 cannot be divided by two ranks", done.stderr)
        ranks = 1 + len(os.sched_getaffinity(0))
        done = self.run_program("train", "--batch", str(ranks), "--ranks", str(ranks), "--max-steps", "1")
        self.assertIn(f"note    {ranks} ranks share {ranks - 1} cores", done.stderr)

    def test_long_arguments_are_cut(self):
        for words in (("train", "--data", "x" * 5000), ("x" * 5000,), ("inspect", "x" * 4000), ("train", "--" + "x" * 5000)):
            done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
            self.assertLess(len(done.stderr), 1000)
            self.assertIn("characters)", done.stderr)

    def test_a_download_that_is_interrupted_leaves_nothing(self):
        if not json.loads(self.run_program("doctor", "--json").stdout)["download"]:
            self.skipTest("built without libcurl")
        with socket.create_server(("127.0.0.1", 0)) as silent:  # a proxy that never answers
            child = self.start("data", "get", "mnist", "--data-dir", str(self.dir / "data"),
                               env={**os.environ, "https_proxy": f"http://127.0.0.1:{silent.getsockname()[1]}"})
            connection, _ = silent.accept()
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=60)
            connection.close()
        self.assertEqual(child.returncode, 130, err)
        self.assertEqual(list((self.dir / "data/mnist").iterdir()), [])

    def test_a_mistake_of_launch_is_not_one_of_the_program(self):
        self.refused("--nproc-per-node", "launch", "-n", "0", "--", "sleep", "--foo")

    def test_results_that_cannot_be_printed(self):
        for words in (("data", "list"), ("data", "list", "--json"), ("--help",)):
            with open("/dev/full", "w") as full:
                done = subprocess.run([PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 8, done.stderr)
            self.assertIn("standard output cannot be written", done.stderr)

    def test_unknown_models(self):
        for words in (("train", "--model"), ("bench", "train", "--model"), ("bench", "ddp", "--force", "--model"), ("graph",),
                      ("trace", "--model")):
            self.refused("Did you mean 'resnet20'?", *words, "resnt20")

    # ---- training that fails -------------------------------------------------------------------------------------

    def test_a_run_that_never_began_is_in_nobodys_way(self):
        self.tiny_run("--max-steps", "1")
        latest = (self.dir / "runs/latest").resolve()
        lacking = ("train", "--parallel", "none", "--data", "mnist")
        self.refused("has no MNIST", *lacking, code=4)
        self.assertEqual((self.dir / "runs/latest").resolve(), latest)
        for name in ("empty", "occupied"):  # folders of somebody else's
            (self.dir / name).mkdir()
        (self.dir / "occupied/notes.txt").write_text("mine")
        for name in ("empty", "occupied"):
            self.refused("has no MNIST", *lacking, "--out", name, code=4)
            self.assertTrue((self.dir / name).exists())
            self.tiny_run("--max-steps", "1", "--out", name)
        (self.dir / "occupied/checkpoint.safetensors").unlink()  # as if it had been killed before
        (self.dir / "occupied/model.safetensors").unlink()
        self.refused("stopped before its first checkpoint", "eval", "occupied", code=4)
        self.tiny_run("--max-steps", "1", "--out", "occupied")
        self.refused("already holds a run", "train", "--out", "occupied")

    def test_files_of_others_are_not_written_over(self):
        for name in ("config.json", "model.safetensors", "metrics.jsonl", "summary.json", "best.safetensors", "report.html",
                     "trace.json", "timeline.svg", "worst.png", "measurements.json", "results.json"):
            folder = self.dir / name.split(".")[0]
            folder.mkdir()
            (folder / name).write_text('{"model_type": "mine"}')
            self.refused(f"holds a {name} already", "train", "--parallel", "none", "--out", folder.name)
            self.assertEqual({path.name: path.read_text() for path in folder.iterdir()}, {name: '{"model_type": "mine"}'})

    def test_files_of_a_run_are_not_written_over(self):
        self.short_run("run", 2, "--parallel", "none")
        before = {path.name: path.read_bytes() for path in (self.dir / "run").iterdir()}
        for words in (("inspect", "run", "--npy", "fc.weight", "--output"), ("report", "run", "--out"),
                      ("explain", "ring", "--html"), ("trace", "--svg"), ("trace", "--perfetto")):
            for name in ("model.safetensors", "config.json", "metrics.jsonl"):
                self.refused("is a run's, which would be lost", *words, f"run/{name}")
        self.assertEqual({path.name: path.read_bytes() for path in (self.dir / "run").iterdir()}, before)

    def test_predict_shows_one_test_image_at_a_time(self):
        self.short_run("run", 2, "--parallel", "none")
        self.run_program("predict", "run", "7")
        for words in (("7", "8"), ("7", "--format", "csv")):
            self.refused("predict run 7", "predict", "run", *words)

    def test_a_name_that_looks_like_an_option_is_shown_as_a_path(self):
        self.assertIn("--resume ./-run\n", self.tiny_run("--max-steps", "1", "--out=-run").stdout)
        self.run_program("train", "--resume", "./-run", "--max-steps", "1")

    def test_a_long_number_is_no_runs(self):
        for name in ("2147483647-x", "99999999999-y", "0007-z"):
            (self.dir / "runs" / name).mkdir(parents=True)
        self.tiny_run("--max-steps", "1")
        self.assertTrue((self.dir / "runs/0008-digits-cnn/model.safetensors").exists())
        self.run_program("eval", "8")
        self.refused("there is no 8-x", "eval", "8-x", code=4)

    def test_one_process_trains_in_a_directory(self):
        child = self.start("train", "--parallel", "none", "--batch", "8", "--epochs", "1000000", "--out", "run")
        self.wait_for("run/checkpoint.safetensors")
        self.refused("another process is training in run", "train", "--resume", "run")
        self.refused("another process is training in run", "train", "--out", "run")
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
        self.run_program("train", "--resume", "run", "--max-steps", "1")

    def test_a_diverged_run_keeps_the_last_good_checkpoint(self):
        diverging = ("train", "--parallel", "none", "--batch", "8", "--lr", "1e25", "--schedule", "constant")
        self.refused("the run diverged. A lower --lr helps, or --clip-norm 1", *diverging, "--max-steps", "5", "--out", "run", code=1)
        self.assertFalse((self.dir / "run").exists())
        self.refused("the loss is not a number", *diverging, "--max-steps", "5", "--save-every", "1", "--out", "run", code=1)
        saved = json.loads(self.run_program("inspect", "run/checkpoint.safetensors", "--json").stdout)
        self.assertEqual({tensor["not_finite"] for tensor in saved["tensors"]}, {0})
        self.assertEqual(json.loads(saved["metadata"]["progress"])["step"], 1)
        self.assertFalse((self.dir / "run/model.safetensors").exists())
        # One step, whose loss was fine: what it made of the model is not.
        self.refused("the run diverged", *diverging, "--max-steps", "1", "--out", "one", code=1)
        self.assertFalse((self.dir / "one/model.safetensors").exists())

    # ---- resuming ------------------------------------------------------------------------------------------------

    def test_resume_takes_no_other_data_or_seed(self):
        self.tiny_run("--max-steps", "1", "--out", "run")
        for option, value in (("--data", "digits"), ("--seed", "2"), ("--batch", "16")):
            self.refused("leave those options out", "train", "--resume", "run", option, value)
        self.refused("--resume: is empty", "train", "--resume", "")
        self.assertFalse((self.dir / "runs").exists())
        (self.dir / "data").rename(self.dir / "elsewhere")
        (self.dir / "data").write_text("no folder: nothing can be drawn here")
        self.run_program("train", "--resume", "run", "--max-steps", "1", code=8)
        self.run_program("train", "--resume", "run", "--max-steps", "1", "--data-dir", "elsewhere")

    def contents(self, run):
        return {path.name: path.read_bytes() for path in (self.dir / run).iterdir()}

    def test_resume_takes_no_other_images(self):
        self.tiny_run("--epochs", "2", "--max-steps", "2", "--out", "run")
        before = self.contents("run")
        for file, at in (("train-images-idx3-ubyte", 100), ("train-labels-idx1-ubyte", 8)):
            with self.subTest(file=file):
                path = self.dir / "data/digits" / file
                good = path.read_bytes()
                path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
                self.refused("made with other images or labels than there are of digits now", "train", "--resume", "run", code=4)
                self.assertEqual(self.contents("run"), before)
                path.write_bytes(good)
        self.run_program("train", "--resume", "run")

    def test_a_resumption_that_is_refused_changes_nothing(self):
        self.tiny_run("--epochs", "3", "--max-steps", "1", "--out", "run")
        before = self.contents("run")
        for words in ([], ["--epochs", "5"], ["--ranks", "2"]):
            with self.subTest(words=words):
                self.refused("the run takes steps 2 to", "train", "--resume", "run", *words, "--trace-steps", "500:501")
                self.assertEqual(self.contents("run"), before)

    def test_a_failure_is_forgotten_when_the_run_goes_on(self):
        self.tiny_run("--epochs", "3", "--max-steps", "1", "--out", "run")
        metrics = self.dir / "run/metrics.jsonl"
        metrics.write_text('{"failed": "the disk was full"}\n')
        verdict = lambda: json.loads(self.run_program("runs", ".", "--json").stdout)["runs"][0]["verdict"]["name"]
        self.assertEqual(verdict(), "failed")
        self.run_program("train", "--resume", "run", "--max-steps", "1")
        self.assertEqual(metrics.read_text(), "")
        self.assertNotEqual(verdict(), "failed")

    def test_a_checkpoint_that_cannot_be(self):
        self.tiny_run("--epochs", "2", "--max-steps", "2", "--out", "run")
        checkpoint = self.dir / "run/checkpoint.safetensors"
        good = checkpoint.read_bytes()
        seed = json.loads((self.dir / "run/config.json").read_text())["seed"]
        for change, said in (({"sampler": [seed, 0, -8]}, "image -8 of epoch 0"), ({"sampler": [seed, 0, 8]}, "image 8 of epoch 0"),
                             ({"sampler": [seed, 7, 16]}, "of epoch 7"), ({"sampler": [seed, 0]}, "lacks what continuing needs"),
                             ({"step": -1}, "step -1"), ({"step": 0}, "step 0"), ({"step": 1 << 62}, "expected 1 to 12"),
                             ({"images": 48}, "has used 48 images"), ({"loss_sums": []}, "no sum of losses"),
                             ({"loss_sums": None}, "lacks what continuing needs"), ({"recipe": {}}, "lacks what"),
                             ({"used_images": [1]}, "lacks what continuing needs")):
            with self.subTest(change=change):
                checkpoint.write_bytes(good)
                rewrite_safetensors(checkpoint, **change)
                self.refused(said, "train", "--resume", "run", code=4)
        checkpoint.write_bytes(good)
        rewrite_safetensors(checkpoint, rename=lambda name: name.replace("optim.momentum.fc", "optim.momentum.fd"))
        self.refused("momentum.fc.bias; unexpected in the state", "train", "--resume", "run", code=4)
        checkpoint.unlink()
        self.refused("stopped before its first checkpoint", "train", "--resume", "run", code=4)

    def test_a_rank_takes_the_run_that_its_launcher_holds(self):
        for run, steps in (("a", "1"), ("b", "3")):
            self.tiny_run("--max-steps", steps, "--out", run)
        (self.dir / "latest").symlink_to("b")  # it was a when the launcher looked
        other = (self.dir / "b/checkpoint.safetensors").read_bytes()
        rank = {"RANK": "0", "WORLD_SIZE": "1", "RINGGRAD_RUN": "a"}
        self.run_program("train", "--resume", "latest", "--max-steps", "1", env=rank)
        saved = json.loads(self.run_program("inspect", "a/checkpoint.safetensors", "--json").stdout)
        self.assertEqual(json.loads(saved["metadata"]["progress"])["step"], 2)
        self.assertEqual((self.dir / "b/checkpoint.safetensors").read_bytes(), other)
        for link in ("latest", "latest/"):
            done = self.run_program("train", "--resume", link, "--max-steps", "1")
            self.assertIn(str((self.dir / "b").resolve()), done.stdout)

    def test_an_epoch_that_was_not_evaluated_is_reported_by_the_next_process(self):
        self.tiny_run("--epochs", "2", "--max-steps", "6", "--out", "run")
        metrics = self.dir / "run/metrics.jsonl"
        whole = json.loads(metrics.read_text())
        metrics.unlink()  # as if it had been killed after the checkpoint
        self.run_program("train", "--resume", "run", "--max-steps", "1")
        said = [json.loads(line) for line in metrics.read_text().splitlines()]
        self.assertEqual(said, [{key: whole[key] for key in said[0]}])
        self.assertEqual(sorted(said[0]), ["epoch", "loss", "step", "test_accuracy", "test_loss"])
        self.run_program("train", "--resume", "run")
        self.run_program("train", "--resume", "run", "--ranks", "2")  # which has nothing more to do
        self.assertEqual([json.loads(line)["epoch"] for line in metrics.read_text().splitlines()], [1, 2])
        metrics.write_text(metrics.read_text().splitlines()[0] + "\n")
        self.run_program("train", "--resume", "run", "--ranks", "2")
        self.assertEqual([json.loads(line)["epoch"] for line in metrics.read_text().splitlines()], [1, 2])

    def test_a_run_whose_first_file_does_not_fit_leaves_nothing(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50, resource.RLIM_INFINITY))
        for command in (["train", "--parallel", "none", "--batch", "8"], ["gan", "--batch", "8"], ["reinforce"]):
            with self.subTest(command=command):
                self.refused("config.json cannot be written", *command, code=8, preexec_fn=limit)
                self.assertEqual(list((self.dir / "runs").iterdir()), [])

    def test_metrics_are_whole_lines(self):
        self.tiny_run("--epochs", "3", "--max-steps", "6", "--out", "run")
        metrics = self.dir / "run/metrics.jsonl"
        first = metrics.read_text()
        metrics.write_text(first + first[:40])  # half a line, of a process that was killed
        self.run_program("train", "--resume", "run", "--max-steps", "6")
        self.assertEqual([json.loads(line)["epoch"] for line in metrics.read_text().splitlines()], [1, 2])
        (self.dir / "run/metrics.jsonl").unlink()
        metrics.write_text("\n" * (1 << 20))  # with the rest of a line more than a file may have
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, ((1 << 20) + 20, resource.RLIM_INFINITY))
        done = self.run_program("train", "--resume", "run", "--max-steps", "6", code=8, preexec_fn=limit)
        self.assertIn("metrics.jsonl: File too large", done.stderr)
        self.assertEqual(metrics.stat().st_size, 1 << 20)

    # ---- files ---------------------------------------------------------------------------------------------------

    def test_images_of_another_size(self):
        self.tiny_run("--max-steps", "1", "--out", "run")
        images = self.dir / "data/digits/t10k-images-idx3-ubyte"
        write_idx(images, 12, 2, 2)
        for words in (["predict", "run", "3"], ["eval", "run"], ["train", "--parallel", "none"], ["data", "check", "digits"]):
            done = self.refused("holds images of shape [12, 1, 2, 2], expected [12, 1, 28, 28]", *words, code=4)
            self.assertIn(images.name, done.stderr)

    def test_a_config_that_cannot_be(self):
        self.tiny_run("--max-steps", "1", "--out", "run")
        file = self.dir / "run/config.json"
        config = json.loads(file.read_text())
        for key, value in (("batch", 0), ("batch", -5), ("epochs", 1 << 62), ("warmup", 1e300), ("model", "lenett")):
            file.write_text(json.dumps({**config, "recipe": {**config["recipe"], key: value}}))
            self.refused(f"--{key} is {'' if key == 'warmup' else value if key != 'model' else repr(value)}", "train",
                         "--resume", "run", code=4)
        for key, value in (("batch", 3.7), ("epochs", 1.5), ("crop", 0.1)):
            file.write_text(json.dumps({**config, "recipe": {**config["recipe"], key: value}}))
            self.refused(f"{key} is {value}, expected a whole number", "train", "--resume", "run", code=4)
        for ranks in (0, -1, 3.7, 1 << 40):
            file.write_text(json.dumps({**config, "division": {**config["division"], "ranks": ranks}}))
            self.refused(f"ranks is {ranks}, expected a whole number from 1 to 4096", "train", "--resume", "run", code=4)
        file.write_text(json.dumps({**config, "division": {**config["division"], "parallel": "ddp", "transport": "pigeon"}}))
        self.refused("--transport is 'pigeon', expected auto, shm or tcp", "train", "--resume", "run", code=4)
        for seed in (-1, 1.5):
            file.write_text(json.dumps({**config, "seed": seed}))
            self.refused(f"seed is {seed}, expected a whole number from 0", "train", "--resume", "run", code=4)

    def test_paths_that_the_system_refuses(self):
        (self.dir / "loop").symlink_to("loop")
        self.tiny_run("--max-steps", "1", "--out", "run")
        for words in (("train", "--resume", "loop"), ("eval", "loop"), ("train", "--parallel", "none", "--init", "loop"),
                      ("train", "--parallel", "none", "--data-dir", "loop"), ("train", "--resume", "run", "--data-dir", "loop")):
            self.refused("loop", *words, code=8)
        self.refused("image: cannot open no.pgm: No such file or directory", "predict", "run", "no.pgm", code=4)
        os.mkfifo(self.dir / "pipe")
        self.refused("image: pipe is not a regular file", "predict", "run", "pipe", code=4)

    def test_threads_that_cannot_be_started(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_STACK, (1 << 47, resource.RLIM_INFINITY))  # of each thread
        for ranks in ("1", "2"):
            self.refused("a thread cannot be started: ", "train", "--ranks", ranks, "--batch", "8", code=3, preexec_fn=limit,
                         env={"RINGGRAD_THREADS": "1"})

    def test_weights_that_cannot_be(self):
        self.tiny_run("--max-steps", "1", "--out", "run")
        for name, change, said in (("fc.weight", {"values": [float("nan")]}, "fc.weight holds values that are not finite"),
                                   ("layer1.1.running_var", {"values": [-1.0]}, "layer1.1.running_var holds negative variances"),
                                   ("fc.bias", {"dtype": "I32"}, "fc.bias is int32 in the state, expected float32")):
            shutil.copy(self.dir / "run/model.safetensors", self.dir / "x.safetensors")
            change_tensor(self.dir / "x.safetensors", name, **change)
            for words in (("eval", "x.safetensors"), ("train", "--parallel", "none", "--init", "x.safetensors")):
                done = self.refused(said, *words, code=4)
                self.assertNotIn("--lr", done.stderr)

    def test_names_that_would_steer_a_terminal(self):
        header = json.dumps({"__metadata__": {"m": "\x1b]0;title\x07"},
                             "w\x1b[2J\x9b1m": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        (self.dir / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
        done = self.run_program("inspect", "x.safetensors")
        self.assertIn(r"w\x1b[2J\xc2\x9b1m", done.stdout)
        done.stderr += self.refused(r"expected one of", "eval", "x.safetensors", "--model", "\x1b[31mcnn", "--data", "digits").stderr
        for steering in "\x1b\x9b\x07":
            self.assertNotIn(steering, done.stdout + done.stderr)

    def test_a_checkpoint_is_a_model(self):
        self.tiny_run("--epochs", "1", "--out", "run")
        checkpoint, model = "run/checkpoint.safetensors", "run/model.safetensors"
        said = [json.loads(self.run_program("eval", file, "--json").stdout) for file in (checkpoint, model)]
        self.assertEqual(*said)
        self.assertEqual(said[0]["model"], "cnn")
        said = [json.loads(self.run_program("predict", file, "3", "--json").stdout) for file in (checkpoint, model)]
        self.assertEqual(*said)
        self.refused("does not fit cnn for cifar10", "eval", model, "--data", "cifar10", code=4)

    def test_pytorchs_prefix_is_left_out_and_that_is_said(self):
        self.tiny_run("--max-steps", "1", "--out", "run")
        model = self.dir / "run/model.safetensors"
        before = self.run_program("eval", "run")
        self.assertNotIn("module.", before.stderr)
        rewrite_safetensors(model, rename="module.{}".format)
        after = self.run_program("eval", "run")
        self.assertIn('all names begin with "module."', after.stderr)
        self.assertEqual(before.stdout, after.stdout)

    def test_inspect_refuses_what_it_cannot_write(self):
        self.tiny_run("--max-steps", "1", "--out", "run")
        model = "run/model.safetensors"
        self.refused("Did you mean 'fc.weight'?", "inspect", model, "--npy", "fc.weigth", "--output", "w.npy")
        self.refused("--npy", "inspect", model, "--output", "w.npy")
        self.refused("--output", "inspect", model, "--npy", "fc.weight")
        self.refused("--npy takes a tensor", "inspect", "data/digits/t10k-images-idx3-ubyte", "--npy", "x", "--output", "w.npy")
        header = json.dumps({"w": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}).encode()
        (self.dir / "half.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(2))
        self.refused("NumPy has no dtype bfloat16", "inspect", "half.safetensors", "--npy", "w", "--output", "w.npy")
        self.assertFalse((self.dir / "w.npy").exists())
        self.refused("cannot be created", "inspect", model, "--npy", "fc.weight", "--output", "no/such/w.npy", code=8)

    def test_a_pgm_that_ends_with_its_header(self):
        self.tiny_run("--max-steps", "1", "--out", "run")
        (self.dir / "short.pgm").write_bytes(b"P5\n28 28\n255")
        done = self.refused("ends with its header", "predict", "run", "short.pgm", code=4)
        self.assertNotIn("-1", done.stderr)

    def test_a_cut_file_of_cifar_10_is_none_of_cifar_100(self):
        (self.dir / "batch.bin").write_bytes(bytes(5000))
        self.refused("3073", "inspect", "batch.bin", code=4)

    def test_idx_sizes_that_overflow(self):
        file = self.dir / "huge"
        for sizes in ([1 << 31] * 4, [0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0], [0xFFFFFFFF, 0x80000001, 2]):
            file.write_bytes(bytes([0, 0, 8, len(sizes)]) + b"".join(n.to_bytes(4, "big") for n in sizes))
            self.refused("more bytes than any file has", "inspect", "huge", code=4)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
