#!/usr/bin/env python3
"""Tests what shells and `man` get from the program's table of commands: program_shells_test.py PATH_TO_RINGGRAD
[test names]. zsh and fish are asked where they are installed, bash and groff likewise."""

import functools, json, re, shutil, subprocess, sys, unittest

from program_case import PROGRAM, ProgramCase


@functools.cache
def commands():
    """The words of every command, as the help lists them."""
    def below(words):
        shown = subprocess.run([PROGRAM, *words, "--help"], capture_output=True, text=True, check=True).stdout
        names = re.findall(r"^  ([a-z-]+) ", shown.split("Subcommands:")[1].split("\n\n")[0], re.M) if "Subcommands:" in shown else []
        return [words] + [deeper for name in names for deeper in below([*words, name])]
    return below([])


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"{program} is not installed")


class Shells(ProgramCase):
    # ---- what completes: (a command line, words that are offered, words that are not) ------------------------------
    LINES = (("ringgrad ", {"train", "bench", "completion"}, {"ddp", "--lr"}),
             ("ringgrad tr", {"train", "trace"}, {"bench"}),
             ("ringgrad bench ", {"ddp", "kernel"}, {"train-", "lr"}),
             ("ringgrad train --l", {"--lr", "--label-smoothing", "--log-every"}, {"train", "--rounds"}),
             ("ringgrad bench ddp --ro", {"--rounds"}, {"--lr"}),
             ("ringgrad --plain bench ddp --ro", {"--rounds"}, set()),
             ("ringgrad train --checksums o", {"on", "off"}, {"auto", "--out"}),
             ("ringgrad train --out run", set(), {"runs", "--ranks"}))

    def check(self, complete):
        for line, offered, others in self.LINES:
            with self.subTest(line):
                words = set(complete(line))
                self.assertLessEqual(offered, words, line)
                self.assertFalse(others & words, line)
        for command in commands():
            names = [c[-1] for c in commands_below(command)]
            if names:
                self.assertLessEqual(set(names), set(complete(" ".join(["ringgrad", *command, ""]))))

    @needs("bash")
    def test_bash(self):
        script = self.run_program("completion", "bash").stdout

        def complete(line):
            words = line.split(" ")
            asked = (f"COMP_WORDS=({' '.join(words[:-1])} '{words[-1]}'); COMP_CWORD={len(words) - 1}; _ringgrad; "
                     'printf "%s\\n" "${COMPREPLY[@]}"')
            return subprocess.run(["bash", "-uc", script + asked], capture_output=True, text=True, check=True).stdout.split()
        self.check(complete)

    @needs("fish")
    def test_fish(self):
        (self.dir / "ringgrad.fish").write_text(self.run_program("completion", "fish").stdout)

        def complete(line):
            done = subprocess.run(["fish", "--no-config", "-c", f"source ringgrad.fish; complete -C '{line}'"],
                                  capture_output=True, text=True, check=True, cwd=self.dir)
            self.assertEqual(done.stderr, "")
            return [row.split("\t")[0] for row in done.stdout.splitlines()]
        self.check(complete)

    @needs("zsh")
    def test_zsh(self):
        # These record the arguments of `compadd` and `_describe`, since there is no terminal here.
        (self.dir / "_ringgrad").write_text(self.run_program("completion", "zsh").stdout)

        def complete(line):
            words = " ".join(f"'{word}'" for word in line.split(" "))
            script = f"""
                setopt extended_glob
                _describe() {{ local list=${{@[-1]}}; print -l -- ${{${{(P)list}}%%:*}} }}
                compadd() {{ print -l -- ${{(P)2}} }}
                _files() {{ : }}
                words=({words}); CURRENT=$#words
                ringgrad() {{ {(self.dir / '_ringgrad').read_text()} }}
                ringgrad"""
            done = subprocess.run(["zsh", "-fc", script], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), line)
            return [word for word in done.stdout.split() if word.startswith(line.split(" ")[-1])]
        self.check(complete)

    def test_every_command_has_a_page_and_every_option_a_line(self):
        self.run_program("man", "pages")
        pages = {page.name: page.read_text() for page in (self.dir / "pages").iterdir()}
        self.assertEqual(set(pages), {"-".join(["ringgrad", *words]) + ".1" for words in commands()})
        lines = 0
        for words in commands():
            shown = subprocess.run([PROGRAM, *words, "--help"], capture_output=True, text=True).stdout
            page = pages["-".join(["ringgrad", *words]) + ".1"].replace("\\-", "-")
            for option in re.findall(r"^ +(?:-\w,)?(--[a-z0-9_-]+)", shown, re.M):
                self.assertRegex(page, rf"(?m)^\\fB.*{option}\b", (words, option))
                lines += 1
        self.assertGreater(lines, 200)
        if shutil.which("groff"):
            for name in pages:
                done = subprocess.run(["groff", "-man", "-K", "utf8", "-Tutf8", "-ww", name], cwd=self.dir / "pages", capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""), name)
                self.assertIn("SYNOPSIS", re.sub(r"\x1b\[[\d;]*m|.\x08", "", done.stdout))

    def test_what_is_no_shell_or_folder(self):
        self.assertIn("expected bash,zsh,fish", self.run_program("completion", "tcsh", code=2).stderr)
        (self.dir / "file").write_text("")
        self.assertIn("file", self.run_program("man", "file", code=8).stderr)

    def test_version_says_from_what_it_was_built(self):
        said = self.run_program("--version").stdout
        root = PROGRAM.parents[2]
        version = re.search(r"project\(ringgrad VERSION (\S+)", (root / "CMakeLists.txt").read_text())
        self.assertRegex(said, rf"^ringgrad {version[1] if version else ''}")
        facts = json.loads(self.run_program("--version", "--json").stdout)
        self.assertEqual(sorted(facts), ["commit", "compiler", "cuda", "kernels", "version"])
        for name, value in facts.items():
            self.assertIn(value, said, name)
        self.assertIn(json.loads(self.run_program("doctor", "--json").stdout)["isa"], facts["kernels"])
        head = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True)
        if head.returncode == 0 and (root / ".git").exists():
            self.assertEqual(facts["commit"].rstrip("+"), head.stdout[: len(facts["commit"].rstrip("+"))])


def commands_below(command):
    return [words for words in commands() if len(words) == len(command) + 1 and words[:-1] == command]


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
