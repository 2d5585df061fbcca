#!/usr/bin/env python3
"""`ringgrad report`, `compare` and `runs`, and the verdict at the end of a run: report_test.py PATH_TO_RINGGRAD [test names]."""

import json, os, re, shlex, sys, unittest

from program_case import DigitsCase, HtmlChecker, ProgramCase, write_tiny
from verdict_cases import REAL, TABLES, epochs, rank, run, write


class Tables(ProgramCase):
    """Runs that are only files, whose numbers are known."""

    def json_of(self, *words, **options):
        return json.loads(self.run_program(*words, "--json", **options).stdout)

    def test_every_kind_of_trouble_gets_its_verdict(self):
        for number, (files, _, _) in enumerate(TABLES.values()):
            write(files, self.dir / f"runs/{number:02}")
        listed = self.json_of("runs")
        self.assertEqual(listed["unreadable"], [])
        verdicts = [entry["verdict"] for entry in listed["runs"]]
        self.assertGreater(len({v["name"] for v in verdicts}), 15)
        for verdict, (name, (_, expected, words)) in zip(verdicts, TABLES.items(), strict=True):
            with self.subTest(name):
                self.assertEqual(verdict["name"], expected, verdict)
                self.assertIn(words, verdict["why"])
                self.assertTrue(verdict["next"])
                self.assertRegex(verdict["why"], "[0-9]")

    def test_the_next_command_is_the_run_s_own_with_one_thing_changed(self):
        own = {"model": "resnet18", "data": "/my pets' pictures", "image_size": 96, "freeze": "backbone", "lr": 0.02, "batch": 32}
        files = run([rank(data=4.0), rank(data=4.2)], recipe=own)
        files["config.json"] |= {"init": "/weights.safetensors", "images": {}}
        write(files, self.dir / "runs/0001-own")
        command = shlex.split(self.json_of("runs")["runs"][0]["verdict"]["next"])
        words = command[command.index("train") + 1 :]
        said = dict(zip(words[::2], words[1::2]))
        self.assertEqual(said["--data"], "/my pets' pictures")
        self.assertEqual((said["--image-size"], said["--freeze"], said["--lr"]), ("96", "backbone", "0.02"))
        self.assertEqual((said["--init"], said["--workers"]), ("/weights.safetensors", "2"))
        files["metrics.jsonl"] = epochs((2.31, 2.31, 0.1))  # not learning
        write(files, self.dir / "runs/0002-own")
        command = shlex.split(self.json_of("runs")["runs"][1]["verdict"]["next"])
        self.assertEqual(command[-3:], ["data", "check", "/my pets' pictures"])
        self.assertNotIn("--batch", said)  # 32 is what it would be

    def test_compare_names_the_part_and_what_was_told_differently(self):
        write(run(), self.dir / "runs/0001-a")
        write(run([rank(data=4.2), rank(data=4.4)], recipe={"lr": 0.1}, workers=3), self.dir / "runs/0002-b")
        found = self.json_of("compare", "1", "2")
        self.assertEqual((found["phase"], found["differ"]), ("data", True))
        # 128 images a step, the mean of 0.1 and 0.1 ms, then of 4.2 and 4.4
        self.assertAlmostEqual(found["parts"]["data"]["a_us"], 0.1e3 / 128, places=3)
        self.assertAlmostEqual(found["parts"]["data"]["difference_us"], 4.2e3 / 128, places=3)
        self.assertAlmostEqual(found["speedup"], 5.95 / 10.15, places=4)
        self.assertEqual(found["differences"], [{"what": "lr", "a": "0.05", "b": "0.1"}, {"what": "workers", "a": "1", "b": "3"}])
        told = self.run_program("compare", "runs/0001-a", "runs/0002-b").stdout
        self.assertIn("data made the difference: +32.8 µs of +32.8 µs an image", told)
        for line in told.splitlines():
            self.assertLessEqual(len(line), 80, line)
        alike = self.json_of("compare", "1", "1")
        self.assertEqual((alike["differ"], alike["differences"]), (False, []))

    def test_compare_names_the_layer_and_the_kernel(self):
        def kernels(conv2, fc=0.3):
            return [{"phase": phase, "layer": layer, "kernel": kernel, "ms": ms} for phase, layer, kernel, ms in (
                ("forward", "conv1", "conv2d", 0.8), ("forward", "conv2", "conv2d", 0.9), ("backward", "", "div", 0.01),
                ("backward", "fc", "matmul", fc), ("backward", "conv2", "conv2d_backward_weight", conv2), ("backward", "conv2", "sum", 0.1),
                ("backward", "conv1", "conv2d_backward_weight", 0.5))]
        write(run(kernels=kernels(1.0)), self.dir / "runs/0001-a")
        write(run([rank(backward=5.5), rank(backward=5.5)], kernels=kernels(2.9, fc=0.5)), self.dir / "runs/0002-b")
        found = self.json_of("compare", "1", "2")
        self.assertEqual((found["phase"], found["layer"], found["kernel"]), ("backward", "conv2", "conv2d_backward_weight"))
        # 64 images a step on rank 0
        self.assertAlmostEqual(found["layers"][0]["difference_us"], 1.9e3 / 64, places=3)
        self.assertAlmostEqual(found["kernels"][0]["a_us"], 1.5e3 / 64, places=3)
        for line in self.run_program("compare", "1", "2").stdout.splitlines():
            self.assertLessEqual(len(line), 80, line)
        write(run([rank(data=4.2), rank(data=4.4)], kernels=kernels(1.0)), self.dir / "runs/0003-c")
        self.assertEqual(self.json_of("compare", "1", "3")["layer"], "")  # waiting for data is no layer's
        self.run_program("report", "1", "2")
        page = self.read_page("runs/0001-a/report.html")
        self.assertIn(">Layers and kernels</h3>", page)
        for colour in ("--blue", "--orange"):  # A's and B's, in each chart
            self.assertEqual(page.count(f'stroke="var({colour})"'), 4)

    def test_a_run_of_an_older_version_is_compared_by_its_epochs(self):
        write(run(), self.dir / "new")
        slow = [{**line, "images_per_second": 10000.0, "waiting_for_data": 0.5} for line in epochs((0.7, 0.2, 0.9))]
        old = run(lines=slow)
        del old["summary.json"], old["config.json"]["division"], old["config.json"]["recipe"]["lr"]
        write(old, self.dir / "old")
        found = self.json_of("compare", "new", "old")
        self.assertEqual(found["phase"], "data")
        self.assertAlmostEqual(found["parts"]["data"]["b_us"], 50)
        self.assertIn("no summary.json", self.run_program("report", "old", "--out", "old.html").stderr)

    def test_damage_is_said_and_the_rest_is_shown(self):
        files = run()
        write(files, self.dir / "runs/0001-a")
        write(files, self.dir / "runs/0002-b")
        metrics = self.dir / "runs/0001-a/metrics.jsonl"
        lines = metrics.read_text().splitlines()
        metrics.write_text("\n".join([lines[0], lines[1][:40], '{"epoch": 9}', lines[3]]) + "\n")
        (self.dir / "runs/0001-a/summary.json").write_text('{"version": 1}')
        done = self.run_program("report", "1", "--out", "page.html")
        for said in ("line 2 is damaged", "line 3 is damaged", "epochs 2 to 3 have no line", "summary.json is damaged, and left out"):
            self.assertIn(said, done.stderr)
            self.assertIn(said, self.read_page("page.html"))
        for text in ("", "{", '{"version": "0.1.0"}', '{"recipe": {"batch": "many"}}', '{"recipe": 3}', "[]",
                     '{"recipe": {"batch": 0.5}}'):
            (self.dir / "runs/0001-a/config.json").write_text(text)
            for words in (["report", "1"], ["compare", "2", "1"]):
                self.assertIn("config.json", self.run_program(*words, code=4).stderr)
            listed = self.json_of("runs")
            self.assertEqual([entry["run"] for entry in listed["runs"]], ["runs/0002-b"])
            self.assertIn("0001-a", listed["unreadable"][0]["run"])
        self.assertFalse((self.dir / "runs/0001-a/report.html").exists())

    def test_numbers_that_cannot_be_are_left_out(self):
        for number, change in enumerate(({"confusion": [1, 2]}, {"throttled": -1}, {"ranks": [{}]}, {"worst": [
                {"index": 1, "label": 11, "answer": 0, "loss": 1}]}, {"step_histogram": []}, {"train_seconds": "long"})):
            files = run()
            files["summary.json"].update(change)
            write(files, self.dir / f"runs/{number}")
        for entry in self.json_of("runs")["runs"]:
            self.assertIn("summary.json is damaged", entry["notes"][0])

    def test_a_single_epoch_is_no_more_than_all_images_right(self):
        write(run(lines=epochs((0.7, 0.2, 0.9525))), self.dir / "runs/0001-a")
        self.run_program("report", "1")
        page = self.read_page("runs/0001-a/report.html")
        picture = page[page.index(">Test accuracy</h2>") : page.index(">Learning rate</h2>")]
        percents = [float(text) for text in re.findall(r">([\d.]+) %<", picture)]
        self.assertGreater(len(percents), 2)
        self.assertLessEqual(max(percents), 100)

    def test_a_page_tells_each_epoch_and_when_the_run_began(self):
        write(run(), self.dir / "runs/0001-a")
        os.utime(self.dir / "runs/0001-a/config.json", (1e9, 1e9))
        self.run_program("report", "1", env={"TZ": "UTC"})
        page = self.read_page("runs/0001-a/report.html")
        self.assertIn("2001-09-09 01:46", page)
        table = page[page.index(">Epochs</h2>") : page.index(">Loss</h2>")]
        self.assertEqual(re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", table)[6:12], ["1", "0.7000", "0.2200", "93.00 %", "20,000", "600 ms"])
        self.assertEqual(table.count("<tr>"), 1 + 4)

    def test_names_of_classes_have_room(self):
        names = ["Jagdhund", "Kätzchen auf dem Sofa", "Ente"]
        write(run(classes=names, confusion=[5, 1, 0, 0, 6, 0, 2, 0, 7]), self.dir / "runs/0001-a")
        self.run_program("report", "1")
        page = self.read_page("runs/0001-a/report.html")
        matrix = page[page.index(">Confusion matrix</h2>") : page.index(">What was run</h2>")]
        svg, numbers = matrix.split("</svg>", 1)
        for name, shown in zip(names, ("Jagdhund", "Kätzchen auf d…", "Ente")):
            self.assertEqual(svg.count(f">{shown}</text>"), 2)  # of its row and column
            self.assertEqual(numbers.count(f">{name}</th>"), 2)
        width = float(re.search(r'width="(\d+)"', svg)[1])
        self.assertGreater(width, 12 + 7 * len("row: the label · column: the answer"))

    def test_runs_are_sorted_and_told_apart(self):
        write(run(lines=epochs((0.7, 0.2, 0.91)), recipe={"lr": 0.1}), self.dir / "runs/0001-a")
        write(run(lines=epochs((0.7, 0.2, 0.95)), images_per_second=9.0), self.dir / "runs/0002-b")
        by_accuracy = self.json_of("runs", "--sort", "accuracy")["runs"]
        self.assertEqual([entry["run"] for entry in by_accuracy], ["runs/0002-b", "runs/0001-a"])
        self.assertEqual([entry["differs"] for entry in by_accuracy], ["lr 0.05", "lr 0.1"])
        self.assertEqual(self.json_of("runs", "--sort", "speed")["runs"][0]["run"], "runs/0001-a")
        for line in self.run_program("runs").stdout.splitlines():
            self.assertLessEqual(len(line), 80, line)

    def test_mistakes_are_told(self):
        write(run(), self.dir / "runs/0001-a")
        for words, said, code in ((["report"], "required", 2), (["report", "nothing"], "nothing is not a run directory", 4),
                                  (["runs", "--sort", "acuracy"], "Did you mean 'accuracy'?", 2), (["runs", "no"], "no directory no", 4),
                                  (["reprot", "1"], "Did you mean 'report'?", 2), (["report", "1", "--output", "x"], "Did you mean '--out'?", 2),
                                  (["train", "--bucket", "1"], "Did you mean '--bucket-mb'?", 2),
                                  (["report"] + ["1"] * 7, "expected at most 6", 2), (["report", "1", "--out", "no/x.html"], "no/x.html", 8),
                                  (["compare", "1"], "required", 2), (["compare", "1", "17"], "17 is not a run directory", 4)):
            self.assertIn(said, self.run_program(*words, code=code).stderr)

    def test_words_of_a_run_cannot_leave_the_page(self):
        hostile = "</code><script>alert(1)</script>\x1b[31m"
        files = run(command=hostile, machine=hostile, classes=[hostile] * 10, data_digest=hostile)
        files["config.json"]["version"] = hostile
        files["config.json"]["data_dir"] = hostile
        write(files, self.dir / "runs/0001-a")
        self.run_program("report", "1", "1")
        page = self.read_page("runs/0001-a/report.html")
        self.assertNotIn("<script", page)
        self.assertNotIn("\x1b", page)
        self.assertEqual(HtmlChecker(page).open, [])


class Real(DigitsCase):
    """Runs that were made."""

    def verdict(self, *words, env={}):
        done = json.loads(self.run_program("train", "--json", "--out", "run", *words, env=env).stdout)
        return done["verdict"]

    def test_planted_trouble_is_found(self):
        for name, (words, environment, expected, why) in REAL.items():
            with self.subTest(name):
                verdict = json.loads(self.run_program("train", "--json", "--no-report", *words, env=environment).stdout)["verdict"]
                if verdict["name"] == "busy-processor" and set(expected.split("|")) & set(verdict["also"]):
                    continue  # other programs, too, are in its way
                self.assertIn(verdict["name"], expected.split("|"), verdict)
                self.assertIn(why, verdict["why"])

    def test_a_run_ends_with_verdict_and_page(self):
        done = self.run_program("train", "--epochs", "1")
        self.assertRegex(done.stdout, r"(?m)^verdict [a-z-]+")
        self.assertRegex(done.stdout, r"(?m)^why     .*[0-9]")
        self.assertRegex(done.stderr, r"(?m)^next    ")
        folder = self.dir / "runs/0001-digits-cnn"
        summary = json.loads((folder / "summary.json").read_text())
        # The parts of the measured steps are all of the training but the first three steps.
        measured = sum(summary["ranks"][0]["step_ms"].values()) * summary["measured_steps"] / 1e3
        self.assertEqual(summary["measured_steps"], 94 - 3)
        self.assertLess(measured, summary["train_seconds"])
        self.assertGreater(measured, 0.5 * summary["train_seconds"])
        self.assertEqual(sum(summary["step_histogram"]["bins"]), summary["measured_steps"])
        # 2 (n - 1) / n of the gradients of 29,034 parameters, which begin at multiples of 64 bytes.
        for one in summary["ranks"]:
            self.assertAlmostEqual(one["sent_bytes"], 29_034 * 4, delta=64 * 8)
        again = json.loads(self.run_program("eval", "latest", "--json").stdout)
        self.assertEqual(summary["confusion"], again["confusion"])
        wrong = sum(image["label"] != image["answer"] for image in summary["worst"])
        self.assertEqual(wrong, min(25, again["total"] - again["correct"]))
        self.assertEqual(len({image["index"] for image in summary["worst"]}), 25)

        self.run_program("report", "1", "--out", "again.html")
        for file in (folder / "report.html", self.dir / "again.html"):
            page = self.read_page(file)
            seen = HtmlChecker(page)
            self.assertEqual(seen.open, [])
            self.assertLess(len(page), 300_000)
            self.assertNotIn("script", seen.tags)
            self.assertEqual({address[:22] for address in seen.addresses}, {"data:image/png;base64,"})
            self.assertEqual(len(seen.addresses), 25)
            self.assertNotRegex(re.sub(r"<[^>]*>", "", page), "https?:")
            for title in ("Epochs", "Loss", "Test accuracy", "Learning rate", "Where the time goes", "Step times", "Memory and bytes by rank",
                          "Confusion matrix", "The images that it gets most wrong", "What was run"):
                self.assertIn(f">{title}</h2>", page)
            self.assertIn(" train --epochs 1", page)

    def test_a_run_without_a_summary_is_tested_again(self):
        self.run_program("train", "--epochs", "1", "--max-steps", "30", "--no-report")
        folder = self.dir / "runs/0001-digits-cnn"
        self.assertFalse((folder / "report.html").exists())
        (folder / "summary.json").unlink()
        self.run_program("report", "latest")
        self.assertIn(">Confusion matrix</h2>", self.read_page(folder / "report.html"))

    def test_buckets_stay_as_they_were_told_also_when_continued(self):
        self.run_program("train", "--bucket-mb", "0.01", "--max-steps", "20", "--no-report")
        buckets = lambda: len(json.loads((self.dir / "runs/0001-digits-cnn/summary.json").read_text())["ranks"][1]["buckets"])
        first = buckets()
        self.assertGreater(first, 2)
        self.run_program("train", "--resume", "runs/latest", "--max-steps", "20", "--no-report")
        self.assertEqual(buckets(), first)
        self.assertIn("is for ranks", self.run_program("train", "--parallel", "none", "--bucket-mb", "1", code=2).stderr)


class Tiny(ProgramCase):
    def test_a_full_disk_costs_the_page_only(self):
        write_tiny(self.dir / "data/digits")
        folder = self.dir / "run"
        (folder / "summary.json").mkdir(parents=True)  # where a file cannot be written
        done = self.run_program("train", "--parallel", "none", "--batch", "8", "--epochs", "1", "--out", "run")
        self.assertIn("the run is saved, its report is not", done.stderr)
        self.assertTrue((folder / "model.safetensors").exists())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
