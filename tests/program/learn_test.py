#!/usr/bin/env python3
"""`ringgrad learn`: each grader fails the stub, passes the engine's own file, and rejects typical mistakes.

learn_test.py PATH_TO_RINGGRAD [test names]
"""

import json, pathlib, re, subprocess, sys, unittest
from concurrent.futures import ThreadPoolExecutor

from learn_mistakes import MISTAKES
from program_case import PROGRAM, ProgramCase

ROOT = pathlib.Path(__file__).resolve().parents[2]


class LearnCase(ProgramCase):
    def exercises(self):
        return json.loads(self.run_program("learn", "list", "--json").stdout)["exercises"]

    def check(self, number, text, code):
        """Returns the words of a check of a file with this text."""
        file = self.dir / f"{number}-{abs(hash(text))}.cpp"
        file.write_text(text)
        done = self.run_program("learn", "check", str(number), "--file", str(file), "--json", code=code)
        verdict = json.loads(done.stdout)
        self.assertEqual(verdict["passed"], code == 0)
        return verdict

    def for_all(self, test, cases):
        """On two cores: most of the time goes into compiling."""
        with ThreadPoolExecutor(2) as pool:
            failed = [str(error) for error in pool.map(lambda case: self.failure_of(test, case), cases) if error]
        self.assertEqual(failed, [], "\n\n".join(failed))

    def failure_of(self, test, case):
        try:
            test(case)
        except AssertionError as error:
            return f"{str(case)[:80]}: {error}"


class Texts(LearnCase):
    """The exercises still fit the engine's files. Nothing is compiled."""

    def test_exercises_are_listed(self):
        exercises = self.exercises()
        self.assertEqual([e["number"] for e in exercises], list(range(1, len(exercises) + 1)))
        self.assertEqual({e["name"] for e in exercises}, set(MISTAKES))
        for exercise in exercises:
            self.assertRegex(exercise["file"], r"^learn/\d\d_\w+\.cpp$")
            self.assertTrue((ROOT / exercise["source"]).is_file(), exercise)

    def test_a_stub_is_written_once(self):
        for exercise in self.exercises():
            number = str(exercise["number"])
            self.run_program("learn", "check", number, code=1)  # there is none
            self.run_program("learn", "start", number)
            file = self.dir / exercise["file"]
            stub = file.read_text()
            self.assertIn("yours to write", stub)
            for line in stub.splitlines():
                self.assertLessEqual(len(line), 120, line)
            self.assertLess(len(stub.splitlines()), len((ROOT / exercise["source"]).read_text().splitlines()) + 30)
            self.run_program("learn", "check", number, code=1)  # untouched
            file.write_text("mine")
            self.assertIn("stays as it is", self.run_program("learn", "start", number, code=2).stderr)
            self.assertEqual(file.read_text(), "mine")

    def test_each_mistake_changes_the_engine_s_file(self):
        sources = {e["name"]: ROOT / e["source"] for e in self.exercises()}
        for name, mistakes in MISTAKES.items():
            text = sources[name].read_text()
            for mistake, replaced, _ in mistakes:
                changed = text
                for old, new in replaced:
                    self.assertEqual(changed.count(old), 1, f"{name}, {mistake}: {old!r}")
                    changed = changed.replace(old, new)


class Learn(LearnCase):
    def test_the_engine_passes_and_its_stub_does_not(self):
        def both(exercise):
            number = exercise["number"]
            self.run_program("learn", "start", str(number))
            stub = (self.dir / exercise["file"]).read_text() + "\n// touched\n"
            self.assertIn("not written yet", self.check(number, stub, 1)["why"], exercise["name"])
            self.assertGreaterEqual(len(self.check(number, (ROOT / exercise["source"]).read_text(), 0)["checks"]), 4)

        self.for_all(both, self.exercises())

    def test_what_a_learner_may_do(self):
        ring = (ROOT / "distributed/other_collectives/ring_reduce_scatter.cpp").read_text()
        body = re.search(r"\n(  const int size = messages\.size\(\).*?)\n}\n", ring, re.S)[1]
        for does, said in (
            ("int* p = nullptr; *const_cast<int* volatile&>(p) = 1;", "signal 11"),
            ("std::abort();", "signal 6"),
            ("std::exit(0);", "without an answer"),
            ("throw 3;", "no std::exception"),
            ("return;", "what happened"),
            ("undeclared();", "does not compile"),
        ):
            with self.subTest(does):
                text = ring.replace(body, "  " + does).replace("#include <cstring>", "#include <cstdlib>")
                self.assertIn(said, self.check(1, text, 1)["why"])
        renamed = ring.replace("void ring_reduce_scatter(", "void my_reduce_scatter(")
        self.assertIn("does not define", self.check(1, renamed, 1)["why"])
        loops = ring.replace(body, '  std::puts("mine"); for (volatile int i = 0;; i = i + 1) {}').replace(
            "#include <cstring>", "#include <cstdio>"
        )
        self.assertIn("8 seconds", self.check(1, loops, 1)["why"])
        left = subprocess.run(["pgrep", "-f", f"learn check 1 --file {self.dir}"], capture_output=True, text=True)
        self.assertEqual(left.stdout, "")  # nobody loops on

    def test_usage(self):
        for words in (("0",), ("99",), ("-1",), (), ("x",)):
            self.run_program("learn", "check", *words, code=2)
            self.run_program("learn", "start", *words, code=2)
        self.run_program("learn", code=2)
        self.assertIn("list", self.run_program("learn", "lsit", code=2).stderr)

    def test_the_compiler(self):
        """$CXX, with its options, and nothing else where it is set; files of any name."""
        source = ROOT / "data/share_of_rank.cpp"
        number = next(str(e["number"]) for e in self.exercises() if e["source"] == "data/share_of_rank.cpp")
        (self.dir / "-mine").write_text(source.read_text())
        check = ["learn", "check", number, "--file=-mine"]
        self.assertIn("passed", self.run_program(*check, env={"CXX": "c++ -O1"}).stdout)
        done = self.run_program(*check, code=3, env={"CXX": "/no/such/compiler"})
        self.assertIn("no C++ compiler", done.stderr)
        self.assertIn("install g++", done.stderr)


class Mistakes(LearnCase):
    def test_mistakes_are_rejected(self):
        numbers = {e["name"]: e for e in self.exercises()}
        for name, mistakes in MISTAKES.items():
            self.assertGreaterEqual(len(mistakes), 3, name)

        def one(case):
            name, mistake, replaced, said = case
            text = (ROOT / numbers[name]["source"]).read_text()
            for old, new in replaced:
                text = text.replace(old, new)
            verdict = self.check(numbers[name]["number"], text, 1)
            self.assertNotIn("does not compile", verdict["why"], f"{name}, {mistake}")
            self.assertRegex(verdict["failed"] + "\n" + verdict["why"], said, f"{name}, {mistake}")

        self.for_all(one, [(name, *mistake) for name, mistakes in MISTAKES.items() for mistake in mistakes])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
