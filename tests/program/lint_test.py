#!/usr/bin/env python3
"""`ringgrad lint`: each mistake of lint_mistakes.cpp is found, by its name and once, and nothing where there is none.

    lint_test.py RINGGRAD LINT_MISTAKES
"""

import json, pathlib, sys, unittest

sys.dont_write_bytecode = True

from program_case import PROGRAM, ProgramCase

MISTAKES = str(pathlib.Path(sys.argv[2]).resolve())
FOUND_BY = {  # what the program is told -> what lint calls it, and words of where
    "other-parameters": ("optimizer-of-other-parameters", "moves 6 of 6 parameters that no wrapper averages"),
    "unstepped": ("averaged-but-never-stepped", "no optimizer uses them"),
    "training-mode": ("evaluation-in-training-mode", "ranks 0, 1, passes 2, 4"),
    "shuffled": ("shuffled-evaluation", "ranks 0, 1, passes 2, 4"),
    "padded": ("samples-counted-twice", "rank 1"),
    "same-order": ("same-order-every-epoch", "pass 3 "),
    "same-samples": ("same-samples-on-every-rank", "all 2 ranks"),
    "rates": ("learning-rates-differ", "from step 2 on: 0.1 on rank 0, 0.05 on rank 1"),
    "batches": ("batches-differ", "4 samples on rank 0, 5 on rank 1"),
    "own-metrics": ("metrics-of-one-rank", "passes 2, 4"),
    "own-loss": ("loss-of-one-rank", "ranks 0, 1"),
}


class Lint(ProgramCase):
    def lint(self, *words, code):
        done = self.run_program("lint", "--json", *words, code=code)
        return json.loads(done.stdout[done.stdout.index("{"):])

    def test_each_mistake_is_found(self):
        for mistake, (name, where) in FOUND_BY.items():
            with self.subTest(mistake):
                document = self.lint("--", MISTAKES, mistake, code=1)
                self.assertEqual(document["processes"], 2)
                names = [finding["name"] for finding in document["findings"]]
                self.assertEqual(names.count(name), 1, names)
                finding = document["findings"][names.index(name)]
                self.assertIn(where, finding["where"])
                self.assertTrue(finding["why"] and finding["fix"])
                extra = {"other-parameters": {"averaged-but-never-stepped"}}.get(mistake, set())  # two sides of one mistake
                self.assertEqual(set(names) - {name}, extra)

    def test_a_clean_program(self):
        for words in (("--", MISTAKES, "clean"), ("-n", "2", "--", MISTAKES, "clean"), ("--", MISTAKES, "clean", "1")):
            self.assertEqual(self.lint(*words, code=0)["findings"], [])

    def test_what_people_see(self):
        done = self.run_program("lint", "--", MISTAKES, "shuffled", code=1)
        for words in ("shuffled-evaluation\n", "\n  where  ranks 0, 1", "\n  why    ", "\n  fix    a SequentialSampler", "lint: 1 finding in 2 processes"):
            self.assertIn(words, done.stdout)
        done = self.run_program("launch", "-n", "2", "--", MISTAKES, "shuffled")  # a warning
        self.assertIn("looks like a mistake:\nshuffled-evaluation", done.stderr)
        done = self.run_program("launch", "-n", "2", "--", MISTAKES, "clean")
        self.assertEqual(done.stderr, "")

    def test_our_own_training_is_clean(self):
        done = self.run_program("lint", "-n", "2", "--", str(PROGRAM), "train", "--epochs", "1", "--batch", "500", "--no-report", code=0)
        self.assertIn("lint: 0 findings in 2 processes", done.stdout)

    def test_bad_input(self):
        self.assertIn("expected a program", self.run_program("lint", code=2).stderr)
        self.assertIn("expected a program", self.run_program("lint", "--from", ".", "--", "true", code=2).stderr)
        self.assertIn("there is no directory nowhere", self.run_program("lint", "--from", "nowhere", code=4).stderr)
        self.assertIn("Nothing was seen", self.run_program("lint", "--", "true").stderr)
        self.assertIn("exit code 3", self.run_program("lint", "--", "sh", "-c", "exit 3", code=3).stdout)
        self.assertIn("cannot run ./nosuch", self.run_program("lint", "--", "./nosuch", code=3).stderr)
        (self.dir / "rank0-1.json").write_text('{"rank": 0, "size"')
        self.assertIn("is not what a rank has written", self.run_program("lint", "--from", ".", code=4).stderr)
        (self.dir / "rank0-1.json").write_text('{"rank": 0}')
        self.assertIn("lacks what a rank writes", self.run_program("lint", "--from", ".", code=4).stderr)

    def test_what_a_gpu_would_show(self):
        def rank(reads):
            train = {"sampler": 0, "samples": 8, "repeated": 0, "ascending": False, "order": 1, "backwards": 20, "reads": reads,
                     "training": [], "evaluation": []}
            return {"rank": 0, "size": 1, "averaged": 0, "never_stepped": [], "optimizers": [], "largest_batch": 8,
                    "losses_read": reads, "device_reads": reads, "collectives": 0, "passes": [{**train, "backwards": 0}, train]}

        for reads, code in ((20, 1), (2, 0)):
            (self.dir / "rank0-1.json").write_text(json.dumps(rank(reads)))
            names = [finding["name"] for finding in self.lint("--from", ".", code=code)["findings"]]
            self.assertEqual(names, ["item-every-step"] if code else [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
