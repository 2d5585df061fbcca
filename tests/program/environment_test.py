#!/usr/bin/env python3
"""Compares the table of environment variables with the sources: environment_test.py PATH_TO_RINGGRAD [test names]."""

import json, pathlib, re, subprocess, sys, unittest

from program_case import PROGRAM

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("core", "autograd", "nn", "data", "distributed", "cuda_kernels", "models", "program", "bench")
SOURCES = {str(path.relative_to(ROOT)): path.read_text() for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))
           if path.suffix in (".cpp", ".h", ".cu", ".cuh") and path.name not in ("environment_table.cpp",)}
# Calls that read a variable whose name stands there, and literals that can be nothing but a variable's name.
READS = re.compile(r'\b(?:getenv|variable|number_from_environment|number_in|text_in|number|text|enabled|choice|seconds_in|ProcessNumber \w+)\((?:environment, )?"([A-Z][A-Za-z_]+)"')
NAMES = re.compile(r'"(RINGGRAD_[A-Z_]+|(?:SLURM|OMPI|PMI|PMIX|MPI|MASTER|TORCHELASTIC)_[A-Z_]+(?:ess_base_jobid)?|(?:LOCAL_)?(?:RANK|WORLD_SIZE))"')
# A mark for what a rank starts; and a process that is forked to act as a rank.
MAY_SET = ("bench/cuda_nccl_death.cpp", "distributed/job/rank_environment.cpp", "program/learn/dead_rank_exercise.cpp")


def without_comments(text):
    return re.sub(r"(?m)^\s*//.*$", "", text)


class Environment(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.table = json.loads(subprocess.run([PROGRAM, "doctor", "--json"], capture_output=True, text=True, check=True).stdout)["environment"]
        cls.shown = subprocess.run([PROGRAM, "doctor"], capture_output=True, text=True, check=True,
                                   env={"RINGGRAD_SECRET": "a secret of sixteen"}).stdout

    def test_no_variable_is_read_that_is_not_in_the_table(self):
        known = {entry["name"] for entry in self.table}
        found = {(name, file) for file, text in SOURCES.items() for pattern in (READS, NAMES) for name in pattern.findall(without_comments(text))}
        self.assertGreater(len(found), 60)
        self.assertEqual({pair for pair in found if pair[0] not in known}, set())

    def test_every_row_is_whole_and_its_reader_has_the_name(self):
        self.assertEqual(len({entry["name"] for entry in self.table}), len(self.table))
        for entry in self.table:
            with self.subTest(entry["name"]):
                self.assertIn(entry["set_by"], ("user", "tests", "ringgrad", "a launcher", "system"))
                for key in ("values", "default", "meaning"):
                    self.assertTrue(entry[key])
                self.assertIn(f'"{entry["name"]}"', SOURCES[entry["read_by"]])

    def test_doctor_shows_what_a_user_may_set_and_no_value_of_it(self):
        for entry in self.table:
            self.assertEqual(bool(re.search(rf"(?m)^{entry['name']} ", self.shown)), entry["set_by"] == "user", entry["name"])
        self.assertRegex(self.shown, r"(?m)^RINGGRAD_SECRET +SET; 16 characters")
        self.assertNotIn("a secret of sixteen", self.shown)

    def test_options_do_not_travel_by_variables(self):
        setters = {file for file, text in SOURCES.items() if re.search(r"\b(?:un)?setenv\(|\bputenv\(", without_comments(text))}
        self.assertEqual(setters, set(MAY_SET))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
