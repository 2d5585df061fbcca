#!/usr/bin/env python3
"""`ringgrad explain`: its numbers against arithmetic of our own: explain_test.py PATH_TO_RINGGRAD [test names]."""

import json, pathlib, re, sys, unittest

from program_case import HtmlChecker, ProgramCase

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOPICS = "autograd ring buckets overlap dp memory sync-bn same-bits hang unused nan kill mismatch straggler".split()


class Explain(ProgramCase):
    def facts(self, topic, *words):
        """The numbers of a topic, once its page has been looked at: width, and the line that it sends its readers to."""
        done = self.run_program("explain", topic, "--json", "--html", "page.html", *words)
        facts = json.loads(done.stdout)
        self.assertEqual(facts["topic"], topic)
        self.assertNotIn("\033", done.stderr)
        for line in done.stderr.splitlines():
            self.assertLessEqual(len(line), 80, line)
        read = facts["read"]
        self.assertIn(f"{read['file']}:{read['line']}", done.stderr)
        self.assertIn(read["text"], (ROOT / read["file"]).read_text().splitlines()[read["line"] - 1])
        page = self.read_page("page.html")
        seen = HtmlChecker(page)
        self.assertEqual((seen.open, seen.addresses), ([], []))
        self.assertNotIn("script", seen.tags)
        self.assertNotIn("url(", page)
        self.assertIn(f"{read['file']}:{read['line']}", page)
        return facts, done.stderr, seen

    def test_topics_are_listed(self):
        listed = json.loads(self.run_program("explain", "--list", "--json").stdout)["topics"]
        self.assertEqual([topic["name"] for topic in listed], TOPICS)
        self.assertEqual(re.findall(r"^  (\S+) ", self.run_program("explain").stdout, re.M), TOPICS)

    def test_mistakes_of_the_caller(self):
        self.assertIn("Did you mean 'ring'?", self.run_program("explain", "rnig", code=2).stderr)
        self.assertIn("--ranks 9", self.run_program("explain", "ring", "--ranks", "9", code=2).stderr)
        self.assertIn("--ranks is for ring alone", self.run_program("explain", "buckets", "--ranks", "3", code=2).stderr)
        self.run_program("explain", "autograd", "--html", "no/such/directory.html", code=8)
        self.assertEqual(list(self.dir.iterdir()), [])

    def test_autograd(self):
        facts, text, seen = self.facts("autograd")
        a, b, h = -4.0, 2.0, 1e-6

        def g(a, b):
            c, d = a + b, a * b + b**3
            c += c + 1
            c += 1 + c - a
            d += d * 2 + max(b + a, 0)
            d += 3 * d + max(b - a, 0)
            f = (c - d) ** 2
            return f / 2 + 10 / f

        self.assertAlmostEqual(facts["g"], g(a, b), places=9)
        self.assertAlmostEqual(facts["a"]["grad"], (g(a + h, b) - g(a - h, b)) / (2 * h), delta=1e-4)
        self.assertAlmostEqual(facts["b"]["grad"], (g(a, b + h) - g(a, b - h)) / (2 * h), delta=1e-4)
        for leaf in "ab":
            self.assertAlmostEqual(sum(facts[leaf]["parts"]), facts[leaf]["grad"], places=9)
            self.assertGreater(len(facts[leaf]["parts"]), 2)
        for number in ("24.7041", "138.8338", "645.5773"):  # micrograd's README
            self.assertIn(number, text)
        self.assertEqual(seen.tags.count("rect"), facts["nodes"] + 2)  # and the leaves

    def test_ring(self):
        facts, text, _ = self.facts("ring", "--ranks", "3")
        n = facts["ranks"]
        own = [[(c + 1) * 10**r for c in range(n)] for r in range(n)]
        # Step t brings rank r the chunk r - t - 2: first as a partial sum of what its left neighbours have, then complete.
        state = [row[:] for row in own]
        for step in range(2 * (n - 1)):
            self.assertEqual([states[step] for states in facts["states"]], state)
            before = [row[:] for row in state]
            for r in range(n):
                c = (r - step - 2) % n
                state[r][c] = before[r - 1][c] + (own[r][c] if step < n - 1 else 0)
        self.assertEqual([states[-1] for states in facts["states"]], state)
        self.assertEqual(state, [[(c + 1) * 111 for c in range(n)]] * n)
        self.assertEqual(facts["steps"], 2 * (n - 1))
        size = 8 * n
        self.assertEqual(facts["ring_bytes"], [2 * (n - 1) * size // n] * n)
        self.assertEqual(facts["naive_bytes"], [(n - 1) * size] + [size] * (n - 1))
        page = (self.dir / "page.html").read_text()
        for mark in ("33+", "111*"):  # as the legend says, on the page, too
            self.assertIn(mark, text)
            self.assertIn(f"{mark}</td>", page)
        self.assertEqual(page.count('<path class="communicate" d="M'), n)  # arrows, and what travels beside each
        self.assertEqual(page.count(f">{facts['ring_bytes'][0]} B</text>"), n)

    def test_buckets(self):
        facts, _, _ = self.facts("buckets")
        layer = 4 * (64 * 64 + 64)
        self.assertEqual(facts["layer_bytes"], layer)
        for run, buckets in zip(facts["runs"], (12, 4, 2, 1)):  # half a layer: a bias is in one of its own
            sizes = [bucket["bytes"] for bucket in run["buckets"]]
            self.assertEqual((len(sizes), sum(sizes)), (buckets, 4 * layer))
            self.assertLessEqual(max(sizes), run["cap"])
            self.assertEqual(len(run["ready"]), 8)
            self.assertEqual({name.split(".")[0] for name in run["ready"][:2]}, {"fc4"})
            launched = [bucket["launched_ms"] for bucket in run["buckets"]]
            self.assertEqual(launched, sorted(launched))
            for bucket in run["buckets"]:
                self.assertLessEqual(bucket["ready_ms"], bucket["launched_ms"])
                self.assertLessEqual(bucket["launched_ms"], bucket["completed_ms"])

    def test_overlap(self):
        facts, _, _ = self.facts("overlap")
        for way in ("with", "without"):
            step, busy, hidden, until = facts[way], 0, 0, 0
            self.assertEqual(len(step["buckets"]), 6)
            for bucket in step["buckets"]:
                start = max(bucket["launched_ms"], until)
                until = max(start, bucket["completed_ms"])
                busy += until - start
                hidden += max(0, min(until, step["backward_ms"]) - start)
            self.assertAlmostEqual(step["communication_ms"], busy, places=6)
            self.assertAlmostEqual(step["hidden_ms"], hidden, places=6)
        self.assertEqual(facts["without"]["hidden_ms"], 0)
        self.assertGreater(facts["with"]["hidden_ms"], 0)

    def test_dp(self):
        facts, _, _ = self.facts("dp")
        parameters, half = 3 * 4 * (256 * 256 + 256), 4 * 64 * 256  # two devices, a batch of 128
        self.assertEqual(facts["parameter_bytes"], parameters)
        self.assertEqual(facts["copies"], {"inputs (scatter)": half, "parameters (replicate)": parameters, "outputs (gather)": half,
                                           "gradients of outputs": half, "gradients of parameters": parameters})
        self.assertEqual(facts["dp_busiest_bytes"], 2 * parameters + 3 * half)
        gradients_and_count = facts["ddp_sent_bytes"] - parameters  # 2 (n - 1) / n times as much, for n = 2
        self.assertTrue(0 <= gradients_and_count <= 1024, facts["ddp_sent_bytes"])
        first, second, *ranks = facts["peak_bytes"]
        self.assertGreater(first, second)
        self.assertLess(abs(ranks[0] - ranks[1]), 0.1 * ranks[0])

    def test_memory(self):
        facts, _, _ = self.facts("memory")
        parameters = (16 * 32 * 9 + 32) + (32 * 32 * 9 + 32) + (2048 * 10 + 10)
        self.assertEqual(facts["num_parameters"], parameters)
        rows = {row["what"]: row for row in facts["rows"]}
        self.assertEqual(rows["gradients"]["predicted"], 4 * parameters)
        for what in ("parameters", "gradients", "momentum"):  # blocks are rounded up
            self.assertTrue(4 * parameters <= rows[what]["measured"] <= 1.5 * 4 * parameters, rows[what])
        layers = [row for row in facts["rows"] if row["what"] in ("conv1", "relu", "max_pool", "conv2", "fc")]
        of_input, of_conv1, of_pool = 4 * 32 * 16 * 16**2, 4 * 32 * 32 * 16**2, 4 * 32 * 32 * 8**2
        predicted = sum(row["predicted"] for row in layers)
        self.assertEqual(predicted, of_input + of_conv1 + 2 * of_pool + of_pool + of_pool + 4 * 32 * 10)
        measured = sum(row["measured"] for row in layers)  # convolutions may choose another layout elsewhere
        self.assertTrue(0.7 * predicted <= measured <= 1.4 * predicted, layers)
        self.assertGreater(facts["rank"]["peak"], measured)

    def test_sync_bn(self):
        facts, _, _ = self.facts("sync-bn")
        everything = [x for own in facts["samples"] for x in own]

        def normalised(x):
            mean = sum(x) / len(x)
            var = sum((v - mean) ** 2 for v in x) / len(x)
            return [(v - mean) / (var + 1e-5) ** 0.5 for v in x]

        expected = normalised(everything)
        self.assertEqual([len(own) for own in facts["samples"]], [4, 2])
        synced = [y for rank in facts["ranks"] for y in rank["sync"]["y"]]
        plain = [y for rank in facts["ranks"] for y in rank["plain"]["y"]]
        for one, two in zip(synced, expected):
            self.assertAlmostEqual(one, two, places=9)
        for one, two in zip(plain, normalised(facts["samples"][0]) + normalised(facts["samples"][1])):
            self.assertAlmostEqual(one, two, places=9)
        self.assertAlmostEqual(facts["apart"]["plain"], max(abs(x - y) for x, y in zip(plain, expected)), places=9)

    def test_same_bits(self):
        facts, _, _ = self.facts("same-bits")
        self.assertEqual(facts["sums"], [1.5, 0.0])
        jobs = {job["ranks"]: job["answers"] for job in facts["jobs"]}
        self.assertEqual([len(jobs[n]) for n in (1, 2, 3)], [1, 2, 3])
        of = lambda way: [{answer[way] for answer in jobs[n]} for n in (1, 2, 3)]
        self.assertEqual([len(hashes) for hashes in of("plain")], [1, 1, 1])  # ranks of a job always agree
        self.assertEqual(len(set.union(*of("plain"))), 3)
        self.assertEqual(len(set.union(*of("shards"))), 1)
        sums = {(row["rank"], row["ranks"]): row["sums"] for row in facts["partial_sums"]}
        self.assertEqual([sums[r, 3] for r in range(3)], ["0–1", "2–3, 4", "5, 6–7"])
        self.assertEqual([sums[0, 1], sums[0, 2], sums[1, 2]], ["0–7", "0–3", "4–7"])

    def failure(self, topic, code, *words):
        facts, text, _ = self.facts(topic)
        self.assertEqual(facts["exit_code"], code, facts["said"])
        self.assertIn(f"(exit {code}:", text)
        self.assertLess(facts["seconds"], 15)
        for word in words:
            self.assertIn(word, facts["said"])

    def test_hang(self):
        self.failure("hang", 6, "left out a backward before step 2", "rank 1")

    def test_kill(self):
        self.failure("kill", 5, "rank 1", "signal 9", "step 2", "backward")

    def test_nan(self):
        self.failure("nan", 1, "rank 1", "step 2", "fc2.")

    def test_mismatch(self):
        self.failure("mismatch", 6, "fc1.weight", "48, 16", "32, 16")

    def test_unused(self):
        facts, _, _ = self.facts("unused")
        for rank in facts["ranks"]:
            self.assertEqual(rank["steps"], [{"left": 3 / 2, "right": 5 / 2, "nobody": rank["steps"][0]["nobody"]}] * 3)
            self.assertIn(rank["steps"][0]["nobody"], (None, 0))

    def test_straggler(self):
        facts, text, _ = self.facts("straggler")
        self.assertEqual(facts["slow"]["rank"], 1)
        self.assertIn("fc3.", facts["slow"]["parameters"])
        self.assertGreater(facts["slow"]["ms"], facts["planted"]["ms"] / 2)
        self.assertIn("So rank 1 is slow", " ".join(text.split()))

    def test_colours_only_on_a_terminal(self):
        plain = self.run_program("explain", "autograd").stdout
        self.assertNotIn("\033", plain)
        shown = self.on_a_terminal("explain", "autograd")
        self.assertIn("\033[1m", shown)
        self.assertEqual(re.sub(r"\033\[[0-9]*m", "", shown), plain)
        self.assertEqual(self.on_a_terminal("explain", "autograd", env={"NO_COLOR": "1"}), plain)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
