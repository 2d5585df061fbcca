#!/usr/bin/env python3
"""Output on narrow and on plain terminals: program_narrow_test.py PATH_TO_RINGGRAD [test names]."""

import fcntl, os, pty, re, struct, subprocess, sys, termios, unittest

from program_case import PROGRAM, ProgramCase, all_from_terminal, write_tiny
from program_shells_test import commands

COLUMNS = 60


class Narrow(ProgramCase):
    shared = "."

    def setUp(self):
        super().setUp()
        write_tiny(self.dir / "digits")

    def everything(self, *words, columns=COLUMNS, env={}):
        """All that a command writes where both streams are a terminal of so many columns."""
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        child = subprocess.Popen([PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=its, stderr=its, cwd=self.dir, env={
            **os.environ, "RINGGRAD_DATA_DIR": ".", "TERM": "xterm", "RINGGRAD_CALLED_AS": "ringgrad", **env})
        text = all_from_terminal(ours, its, child)
        self.assertEqual(child.wait(timeout=60), 0, text)
        return text.decode().replace("\r\n", "\n")

    def shown(self, *words, columns=COLUMNS):
        """The lines, as they come to stand on the screen one after the other."""
        plain = re.sub(r"\033\[[0-9;?]*[A-Za-z]", "", self.everything(*words, columns=columns))
        return [line for line in re.split(r"[\r\n]", plain)]

    def test_nothing_wraps(self):
        train = ["train", "--batch", "8", "--epochs", "2", "--ranks", "2", "--validation", "0.25", "--keep", "both"]
        for words in (train, [*train, "--lr", "0.3", "--label-smoothing", "0.1", "--seed", "3"],
                      ["train", "--parallel", "none", "--batch", "8", "--max-steps", "3"],
                      ["train", "--resume", "1"], ["runs"], ["runs", "--sort", "speed"], ["watch", "1"], ["compare", "1", "2"],
                      ["report", "1"]):
            lines = self.shown(*words)
            self.assertGreater(len(lines), 2)
            for line in lines:
                # A command stays whole, so that it can be copied; so does a path.
                whole = line.lstrip().removeprefix("next    ").startswith("ringgrad ") or " " not in line.strip()
                self.assertTrue(len(line) <= COLUMNS or whole, (words, line))

    def test_a_narrow_table_has_what_matters(self):
        words = ["train", "--parallel", "none", "--batch", "8", "--epochs", "1", "--out", "runs/0001-run"]
        head = next(line for line in self.shown(*words) if line.split()[:1] == ["epoch"])
        self.assertEqual(head.split(), "epoch loss test acc test loss img/s time".split())
        self.assertEqual(self.shown("runs")[0].split(), "run begun test acc epochs img/s verdict".split())
        self.assertEqual(self.shown("runs", columns=120)[0].split(), "run begun test acc epochs img/s time verdict".split())

    def test_help_fits_and_is_ours(self):
        """On every command; examples have the program's name, which may be longer."""
        for words in commands():
            with self.subTest(words=words):
                for columns in (80, 200):
                    for line in self.shown(*words, "--help", columns=columns):
                        self.assertTrue(len(line) <= 80 or "ringgrad " in line, line)
                told = self.run_program(*words, "--help").stdout
                self.assertNotRegex(told, r"\{false\}|\{true\}|INT:INT|FLOAT:FLOAT")

    def test_plain_and_dumb_terminals_get_lines_alone(self):
        drawn = re.compile("[\033\r\u2500-\u259f\u2800-\u28ff]")
        train = ["train", "--parallel", "none", "--batch", "8", "--epochs", "2"]
        for plain, env in ((["--plain"], {}), ([], {"TERM": "dumb"})):
            for words in (train, ["watch", "1"], ["runs"], ["compare", "1", "1"], ["predict", "1", "3"], ["eval", "1"], ["report", "1"],
                          ["gan", "--batch", "8", "--epochs", "1"], ["doctor"]):
                text = self.everything(*plain, *words, env=env)
                self.assertNotRegex(text, drawn, words)
            self.assertIn("epoch=1 ", self.everything(*plain, "watch", "1", env=env))
        self.assertRegex(self.everything("predict", "1", "3"), drawn)  # elsewhere there are some
        self.assertRegex(self.everything(*train), drawn)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
