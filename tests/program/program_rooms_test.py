#!/usr/bin/env python3
"""The program without the rooms that a build may lack, and with a command of one file: program_rooms_test.py LEAST
WHOLE [test names]. The least program has the objects of no room, so that it linked is half of the test."""

import json, pathlib, re, subprocess, sys, unittest

sys.dont_write_bytecode = True

from program_case import PROGRAM, DigitsCase

WHOLE = pathlib.Path(sys.argv[2]).resolve()
ROOMS = {"explain", "learn", "lint", "gan", "reinforce"}  # speedrun is a preset of train


class Rooms(DigitsCase):
    def commands(self, program):
        listed = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout.split("Subcommands:")[1].split("\n\n")[0]
        return re.findall(r"^  (\S+) ", listed, re.M)

    def test_a_command_is_one_file_and_a_room_only_its_sources(self):
        least, whole = self.commands(PROGRAM), self.commands(WHOLE)
        self.assertEqual(least.pop(least.index("predict") + 1), "twice")  # its place is 35
        self.assertEqual(least, [name for name in whole if name not in ROOMS])
        self.assertEqual(self.run_program("twice").stdout, "8\n")
        self.assertEqual(self.run_program("twice", "--number", "21").stdout, "42\n")
        self.assertIn("--number INT=4 ", self.run_program("help", "twice").stdout)
        self.assertIn("Did you mean 'twice'?", self.run_program("twcie", code=2).stderr)
        self.assertIn("Did you mean '--number'?", self.run_program("twice", "--numebr", "1", code=2).stderr)

    def test_rooms_are_not_there(self):
        for room in ROOMS:
            self.assertIn(f"no command '{room}'", self.run_program(room, code=2).stderr)
        self.assertIn("no option '--preset'", self.run_program("train", "--preset", "speedrun", code=2).stderr)

    def test_it_trains_and_launches(self):
        self.run_program("train", "--epochs", "1", "--max-steps", "4", "--ranks", "2", "--parallel", "ddp", "--out", "run")
        self.assertTrue((self.dir / "run" / "model.safetensors").exists())
        done = self.run_program("launch", "-n", "2", "--json", "--", str(PROGRAM), "train", "--resume", "run")
        self.assertEqual(json.loads(done.stdout)["mistakes"], [])
        self.assertIn('"finished"', self.run_program("train", "--resume", "run", "--json").stdout)

    def test_runs_of_a_command_that_is_not_there_are_known_by_its_name(self):
        (self.dir / "runs" / "0001-digits-gan").mkdir(parents=True)
        (self.dir / "runs" / "0001-digits-gan" / "config.json").write_text('{"gan": {"epochs": 1}, "version": "0.1.0"}')
        self.assertIn("a run of gan", self.run_program("watch", "1").stdout)
        self.assertIn("is no run of `train`, but of `gan`", self.run_program("eval", "1", code=4).stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
