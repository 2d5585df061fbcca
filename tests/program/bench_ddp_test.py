#!/usr/bin/env python3
"""Tests `ringgrad bench ddp`: its words never contradict measurements (made up here), its model has the formulas of the
literature, and a short run leaves the files that it promises.

    bench_ddp_test.py RINGGRAD
"""

import json, math, os, pathlib, random, re, statistics, sys, unittest

sys.dont_write_bytecode = True

from program_case import HtmlChecker, ProgramCase

ALPHA, BETA = 50e-6, 2e-9  # of an all-reduce of two ranks
SIZES = (4096, 32768, 262144, 2097152)
BUCKETS = [(1_000_000, 4.0), (600_000, 8.0), (200_000, 9.9)]  # bytes, ready after so many ms
COMPUTED, ALONE, BUFFERS = 10.0, 20.0, 1000


def seconds(size):
    return ALPHA + BETA * size


def ddp_row(step, alone, exposed=0.3, transfer=0.1):
    return {"ranks": 2, "step_ms": step, "images_per_second": 64e3 / step, "steps": 30, "memory_bytes": [50_000_000, 40_000_000],
            "moved_bytes": 3_600_000, "busiest_bytes": 3_600_000, "no_communication_ms": alone,
            "kept_of_no_communication": alone / step, "exposed_ms": exposed, "transfer_ms": transfer, "computed_ms": COMPUTED,
            "gradient_bytes": 1_800_000, "buffer_bytes": BUFFERS, "samples": [[size, seconds(size)] for size in SIZES],
            "buckets": [{"parameters": "w", "bytes": size, "ready_ms": ready, "launched_ms": ready, "completed_ms": ready + 1}
                        for size, ready in BUCKETS]}


def round_of(none, dp, no_overlap, ddp, alone, copies=1.0):
    return {"none": {"ranks": 1, "step_ms": none, "images_per_second": 64e3 / none, "steps": 30, "memory_bytes": [60_000_000],
                     "moved_bytes": 0, "busiest_bytes": 0},
            "dp": {"ranks": 2, "step_ms": dp, "images_per_second": 64e3 / dp, "steps": 30, "memory_bytes": [80_000_000, 30_000_000],
                   "moved_bytes": 4_000_000, "busiest_bytes": 4_000_000, "copies": 100, "copies_ms": copies,
                   "samples": [[size, 3e-6 + 1e-10 * size] for size in SIZES]},
            "ddp_no_overlap": ddp_row(no_overlap, alone), "ddp": ddp_row(ddp, alone)}


def measured(rounds, cores=2):
    return {"model": "cnn", "batch": 64, "ranks": 2, "device": "cpu", "processor": "made up", "cores": cores,
            "rows": ["none", "dp", "ddp_no_overlap", "ddp"], "rounds": rounds}


class BenchDdp(ProgramCase):
    def explain(self, rounds, *words, cores=2):
        (self.dir / "measurements.json").write_text(json.dumps(measured(rounds, cores)))
        done = self.run_program("bench", "ddp", "--from", ".", "--json", *words)
        document = json.loads(done.stdout)
        return document, {row["row"]: row for row in document["rows"]}, done.stderr

    # ---- no sentence says another thing than the rows --------------------------------------------------------------

    def check_consistent(self, rounds):
        document, rows, text = self.explain(rounds)
        for name, row in rows.items():
            parts = row["parts_ms"]
            self.assertEqual(row["step_ms"], sorted(r[name]["step_ms"] for r in rounds)[len(rounds) // 2])
            self.assertAlmostEqual(sum(parts.values()), row["step_ms"])
            for part in parts.values():
                self.assertGreaterEqual(part, 0)
            low, high = row["step_interval_ms"]
            self.assertTrue(low <= row["step_ms"] <= high)
            self.assertAlmostEqual(row["speed_up"], rows["none"]["step_ms"] / row["step_ms"])
            if name != "none":
                low, high = row["kept_interval"]
                self.assertTrue(low <= row["kept_of_no_communication"] <= high)
                self.assertAlmostEqual(row["exposed_ms"], parts["exposed"] + parts["copies"] + parts["waiting"])
                self.assertAlmostEqual(row["no_communication_ms"], row["kept_of_no_communication"] * row["step_ms"])
        over = document["ddp_over_dp"]
        self.assertAlmostEqual(over["ratio"], rows["dp"]["step_ms"] / rows["ddp"]["step_ms"])
        self.assertTrue(over["low"] <= over["ratio"] <= over["high"])
        self.assertEqual(document["kept_of_no_communication"], rows["ddp"]["kept_of_no_communication"])
        self.assertIn(f"{over['ratio']:.2f}×", text)
        self.assertEqual("rounds cannot tell whether DDP" in " ".join(text.split()), over["rounds"] > 1 and over["low"] <= 1 <= over["high"])
        words = " ".join(text.split())
        fastest, none = min((rows["dp"], rows["ddp"]), key=lambda row: row["step_ms"]), rows["none"]
        several = over["rounds"] > 1  # an interval within one round says nothing about the next
        self.assertEqual(" as fast as one process with all cores (" in words, several and fastest["step_interval_ms"][1] < none["step_interval_ms"][0])
        self.assertEqual("one process with all cores; the best division" in words, several and fastest["step_interval_ms"][0] > none["step_interval_ms"][1])
        self.assertEqual("(one round: no interval); more --rounds decide." in words, not several)
        self.assertIn(f"DataParallel {rows['dp']['speed_up']:.2f}×, DDP {rows['ddp']['speed_up']:.2f}×.", words)
        self.assertIn(document["advice"]["sentence"], words)
        return document, rows, text

    def test_rounds_that_scatter(self):
        draw = random.Random(1)
        for rounds in (1, 2, 3, 5):
            for _ in range(3):
                self.check_consistent([round_of(*(draw.uniform(15, 40) for _ in range(4)), draw.uniform(15, 40), draw.uniform(0, 60))
                                       for _ in range(rounds)])

    def test_communication_that_costs_less_than_nothing(self):
        document, rows, text = self.check_consistent([round_of(20, 21, 19, 18, 20), round_of(20, 21, 19, 19, 20), round_of(20, 21, 19, 20, 20)])
        self.assertAlmostEqual(rows["ddp"]["kept_of_no_communication"], 20 / 19)  # and its interval stands beside it
        self.assertIn("105.3 % (100.0 to 111.1)", text)

    def test_where_dp_spends_its_time(self):
        _, rows, _ = self.explain([round_of(20, 24, 22, 21, 20, copies=1.5)])
        parts = rows["dp"]["parts_ms"]
        for part, ms in {"compute": 20, "copies": 1.5, "waiting": 2.5, "exposed": 0}.items():
            self.assertAlmostEqual(parts[part], ms)
        for part, ms in {"compute": 20.7, "copies": 0, "waiting": 0.2, "exposed": 0.1}.items():
            self.assertAlmostEqual(rows["ddp"]["parts_ms"][part], ms)

    # ---- what to do ----------------------------------------------------------------------------------------------

    def test_the_advice_follows_from_the_rounds(self):
        fast = [round_of(20 + wobble, 18, 15, 12 + wobble, 20) for wobble in (0, 0.2, 0.1)]
        slow = [round_of(20 + wobble, 24, 27, 25 + wobble, 20) for wobble in (0, 0.2, 0.1)]
        near = [round_of(20 + wobble, 24, 27, 20 - wobble, 20) for wobble in (-1, 1, 0)]
        for rounds, chosen, words in ((fast, ("ddp", 2, "train --parallel ddp --ranks 2"), "DDP with 2 ranks (train --parallel ddp --ranks 2), 1.66×"),
                                      (slow, ("none", 1, "train --parallel none"), "the best division, DataParallel on 2 devices, is 0.84×"),
                                      (near, ("none", 1, "train --parallel none"), "cannot tell it from DDP with 2 ranks, 1.00×"),
                                      (fast[:1], ("none", 1, "train --parallel none"), "one round: no interval")):
            document, _, text = self.explain(rounds)
            advice = document["advice"]
            self.assertEqual((advice["parallel"], advice["ranks"], advice["command"]), chosen)
            self.assertTrue(advice["low"] <= advice["gain"] <= advice["high"])
            self.assertEqual(advice["sure"], len(rounds) > 1 and not advice["low"] <= 1 <= advice["high"])
            self.assertIn(words, " ".join(text.split()))

    def test_doctor_advises(self):
        words = ("--model", "lenet", "--batch", "8", "--seconds", "0.05", "--rounds", "2")
        if os.cpu_count() < 2:
            self.skipTest("one core")
        advice = json.loads(self.run_program("doctor", "--advise", *words, "--json").stdout)
        self.assertIn(advice["parallel"], ("none", "dp", "ddp"))
        self.assertIn("For lenet with a batch of 8 on this machine:", advice["sentence"])
        self.run_program(*advice["command"].split(), "--data", "digits", "--model", "lenet", "--max-steps", "1")
        self.assertIn("cannot be divided by two", self.run_program("doctor", "--advise", "--batch", "7", code=2).stderr)
        self.assertIn("--advise", self.run_program("doctor", "--model", "lenet", code=2).stderr)

    # ---- the model ------------------------------------------------------------------------------------------------

    def test_the_rows_by_the_model(self):
        for cores, hidden_costs in ((2, 1), (8, 0)):
            document, rows, _ = self.explain([round_of(20, 24, 22, 21, ALONE)], cores=cores)
            self.assertAlmostEqual(document["costs"]["latency_us"], 50, 3)
            self.assertAlmostEqual(document["costs"]["GBps"], 0.5, 5)
            times = [1e3 * seconds(size) for size, _ in BUCKETS]
            after = 1e3 * seconds(BUFFERS + 64)
            self.assertAlmostEqual(rows["none"]["predicted_ms"], ALONE)
            self.assertAlmostEqual(rows["dp"]["predicted_ms"], ALONE + 100 * 3e-3 + 4e6 * 1e-7, 5)
            self.assertAlmostEqual(rows["ddp_no_overlap"]["predicted_ms"], ALONE + sum(times) + after, 5)
            end = 0
            for (_, ready), time in zip(BUCKETS, times):
                end = max(end, ready) + time
            exposed = end - COMPUTED
            predicted = ALONE + exposed + hidden_costs * (sum(times) - exposed) + after
            self.assertAlmostEqual(rows["ddp"]["predicted_ms"], predicted, 5)

    def test_clusters_by_the_model(self):
        document, _, text = self.explain([round_of(20, 24, 22, 21, ALONE)], "--predict", "8,64,12", "--nodes", "1,8,3", "--network-us",
                                         "20", "--network-gbit", "100", cores=64)
        near, far = (ALPHA / 2, BETA), (20e-6, 8e-11)  # a hop, of two ranks' 2(n-1) = 2 of S/2
        size = 1_800_000
        cost = lambda hop, s: hop[0] + hop[1] * s
        for row, (p, m) in zip(document["prediction"]["rows"], ((8, 1), (64, 8), (12, 3))):
            local = p // m
            ring = 2 * (p - 1) * cost(far if m > 1 else near, size / p)
            exchange = lambda hop, n: cost(hop, (n - 1) * size)
            direct = lambda hop, n: 2 * cost(hop, (n - 1) / n * size)
            messages = lambda hop, n: 0 if n == 1 else min(exchange(hop, n), direct(hop, n))
            hierarchy = 2 * (local - 1) * cost(near, size / local) + messages(far, m)
            direct_ms = messages(far if m > 1 else near, p) if p <= 16 else ring
            self.assertEqual((row["ranks"], row["nodes"]), (p, m))
            for way, time in (("ring", ring), ("direct", direct_ms), ("hierarchy", hierarchy)):
                self.assertAlmostEqual(row[way + "_ms"], 1e3 * time, 4)
            self.assertIn(row["best"], ("ring", "direct", "hierarchy"))
            self.assertAlmostEqual(row["kept_of_no_communication"], ALONE / row["step_ms"])
            self.assertAlmostEqual(row["images_per_second"], p * 32 / row["step_ms"] * 1e3, 3)
        for source in ("Hockney", "Patarasuk & Yuan 2009", "100 Gbit/s"):
            self.assertIn(source, " ".join(text.split()))

    def test_predictions_that_cannot_be(self):
        rounds = [round_of(20, 24, 22, 21, ALONE)]
        (self.dir / "measurements.json").write_text(json.dumps(measured(rounds)))
        for words, message in ((("--predict", "8", "--nodes", "3"), "every node must have equally many"),
                               (("--predict", "8,16", "--nodes", "1,2,4"), "--nodes has 3 numbers"),
                               (("--nodes", "2"), "--nodes requires --predict")):
            self.assertIn(message, self.run_program("bench", "ddp", "--from", ".", *words, code=2).stderr)
        self.assertIn("there is no nowhere", self.run_program("bench", "ddp", "--from", "nowhere", code=4).stderr)
        (self.dir / "measurements.json").write_text('{"rounds": [')
        self.assertIn("is damaged", self.run_program("bench", "ddp", "--from", ".", code=4).stderr)
        (self.dir / "measurements.json").write_text('{"rounds": [{}], "rows": ["none"]}')
        self.assertIn("lack something", self.run_program("bench", "ddp", "--from", ".", code=4).stderr)
        for key, value, message in (("ranks", 0, "are of no ranks"), ("max_difference", {"none_dp": []}, "lack something"),
                                    ("batch", "many", "lack something")):
            (self.dir / "measurements.json").write_text(json.dumps({**measured(rounds), key: value}))
            self.assertIn(message, self.run_program("bench", "ddp", "--from", ".", "--predict", "8", code=4).stderr)

    # ---- a run ----------------------------------------------------------------------------------------------------

    def test_a_run_leaves_its_results_and_a_page(self):
        common = ("bench", "ddp", "--model", "lenet", "--batch", "8", "--seconds", "0.05", "--force", "--rounds", "1")
        done = self.run_program(*common, "--bucket-mb", "auto,0.05", "--predict", "8")
        for line in done.stdout.splitlines():
            self.assertLessEqual(len(line), 80, line)
        for row in ("none", "dp", "ddp_no_overlap", "ddp", "ddp 0.05 MB"):
            self.assertRegex(done.stderr, rf"round 1 of 1 · {row} ")  # silence nowhere
        run = self.dir / "runs/0001-bench-ddp-lenet"
        self.assertEqual(sorted(p.name for p in run.iterdir()), ["measurements.json", "report.html", "results.json"])
        document = json.loads((run / "results.json").read_text())
        rows = {row["row"]: row for row in document["rows"]}
        self.assertEqual(document["kept_of_no_communication"], rows["ddp"]["kept_of_no_communication"])
        for row in rows.values():
            self.assertAlmostEqual(sum(row["parts_ms"].values()), row["step_ms"])
            self.assertGreater(row["predicted_ms"], 0)
        self.assertGreaterEqual(len(rows["ddp 0.05 MB"]["buckets"]), 5)  # 0.25 MB of gradients
        page = self.read_page(run / "report.html")
        checker = HtmlChecker(page)
        self.assertEqual((checker.open, checker.addresses), ([], []))
        for words in ("Where a step", "by the model", "Patarasuk", "For lenet with a batch of 8 on this machine"):
            self.assertIn(words, page)
        again = self.run_program("bench", "ddp", "--from", str(run), "--json")  # explains the same, and writes nothing
        self.assertEqual(json.loads(again.stdout)["rows"], document["rows"])
        self.assertFalse((self.dir / "runs/0002-bench-ddp-lenet").exists())
        undated = lambda page: re.sub(r"<time.*?</time>", "", page, flags=re.S)
        (run / "report.html").unlink()
        drawn = self.run_program("report", "1")  # with the prediction
        self.assertEqual(undated(self.read_page(run / "report.html")), undated(page))
        self.assertIn("report  runs/0001-bench-ddp-lenet/report.html", drawn.stdout)
        (run / "results.json").write_text('{"rows": [{}], "advice": {}, "model": "lenet", "batch": 8, "ranks": 2}')
        self.assertIn("lacks what is to be drawn", self.run_program("report", "1", code=4).stderr)
        (run / "results.json").unlink()
        said = json.loads(self.run_program("report", str(run), "--out", "measured.html", "--json").stdout)
        self.assertEqual((said["file"], said["runs"][0]["command"]), ("measured.html", "bench ddp"))
        measured = self.read_page("measured.html")
        self.assertIn("Where a step", measured)
        self.assertNotIn("On a cluster", measured)
        self.assertIn("but of `bench ddp`", self.run_program("report", "1", "1", code=4).stderr)  # side by side are runs of train
        self.run_program(*common, "--no-report", "--out", "mine")
        self.assertEqual(sorted(p.name for p in (self.dir / "mine").iterdir()), ["measurements.json", "results.json"])
        self.assertIn("bench ddp  model lenet", self.run_program("runs").stdout)
        self.run_program("bench", "ddp", "--bucket-mb", "many", code=2)
        self.assertFalse((self.dir / "runs/0002-bench-ddp-resnet20").exists())


class Help(ProgramCase):
    def test_words_that_name_no_measurement(self):
        for words, said in ((["bench"], "help bench` says what they do"),
                            (["bench", "dpp"], "bench: no command 'dpp'. Did you mean 'ddp'?"),
                            (["help", "bnech"], "no command 'bnech'. Did you mean 'bench'?"),
                            (["help", "bench", "allreduc"], "bench: no command 'allreduc'. Did you mean 'allreduce'?"),
                            (["bench", "ddp", "--bucket", "1"], "Did you mean '--bucket-mb'?")):
            self.assertIn(said, self.run_program(*words, code=2).stderr)
        self.assertIn("bench ddp --model resnet20 --predict 8,64,1024", self.run_program("help", "bench").stdout)
        self.assertIn("--network-gbit", self.run_program("help", "bench", "ddp").stdout)


class PlannedBuckets(ProgramCase):
    """train --bucket-mb auto: what was planned goes on with the run."""

    def test_a_run_that_goes_on_has_the_same_buckets(self):
        common = ("train", "--batch", "120", "--ranks", "3", "--bucket-mb", "auto", "--epochs", "1", "--no-report")
        self.run_program(*common, "--max-steps", "6", "--out", "run", env={"RINGGRAD_TRANSPORT": "tcp"})
        division = json.loads((self.dir / "run/config.json").read_text())["division"]
        self.assertEqual(division["bucket_mb"], "auto")
        planned = self.progress()["bucket_caps"]
        self.assertGreater(min(planned), 0)
        resumed = self.run_program("train", "--resume", "run", "--max-steps", "4", "--no-report")
        self.assertNotIn("the run began with", resumed.stderr)
        self.assertEqual(self.progress()["bucket_caps"], planned)
        done = self.run_program("train", "--resume", "run", "--max-steps", "2", "--bucket-mb", "4", "--no-report")
        self.assertIn("--bucket-mb auto", done.stderr)
        self.assertNotIn("bucket_caps", self.progress())

    def progress(self):
        data = (self.dir / "run/checkpoint.safetensors").read_bytes()
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return json.loads(header["__metadata__"]["progress"])

    def test_words_that_are_no_size(self):
        for words in ("many", "-1", "0", "1e9", ""):
            self.run_program("train", "--bucket-mb", words, code=2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
