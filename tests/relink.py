"""Test programs, linked anew with some of their objects compiled otherwise, in a folder of their own: the build stays as it
is. For what measures the tests: coverage.py, mutants.py, cuda/emulator_mutants.py."""

import json
import re
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ARCHIVE = re.compile(r"(?<= )((?:\w+/)*lib\w+\.a)(?= )")  # of the build itself


class Build:
    def __init__(self, folder):
        self.folder = Path(folder).resolve()
        self.commands = {}  # by object
        for entry in json.loads((self.folder / "compile_commands.json").read_text()):
            words = shlex.split(entry["command"])
            self.commands[words[words.index("-o") + 1]] = words
        self.links = {}

    def compile(self, built, output, options=(), overlay=None, source=None):
        """Compiles the object `built` once more, to `output`, with more options. A file below overlay/ringgrad/ takes the place
        of the one in the tree wherever it is included; `source`, the place of what the object is made of."""
        words = list(self.commands[built])
        words[words.index("-o") + 1] = str(output)
        if overlay:
            words.insert(next(i for i, word in enumerate(words) if word.startswith("-I")), f"-I{overlay}")
        if source:
            words[words.index("-c") + 1] = str(source)
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        return subprocess.run([*words, "-Wno-error", "-Wno-invalid-pch", *options], cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)

    def object_of(self, file, among=""):
        """(the object that has this source file of the tree, what it is made of); `among`: it is of this target."""
        whole = f'"{ROOT / file}"'
        for built, words in self.commands.items():
            made_of = words[words.index("-c") + 1]
            if among in built and (made_of == str(ROOT / file) or ("/Unity/" in made_of and whole in Path(made_of).read_text())):
                return built, Path(made_of)
        raise LookupError(f"{file} is in no object of {self.folder}")

    def objects(self, archive):
        lines = subprocess.check_output(["ninja", "-t", "query", archive], cwd=self.folder, text=True).split("  outputs:")[0]
        return [line.strip() for line in lines.splitlines() if line.endswith(".o")]

    def link(self, program, output, replaced, options=""):
        """Links `program` to `output` with other objects in the place of some: {object: path}."""
        if program not in self.links:
            command = subprocess.check_output(["ninja", "-t", "commands", program], cwd=self.folder, text=True).splitlines()[-1]
            self.links[program] = ARCHIVE.sub(lambda match: " ".join(self.objects(match[1])), command)
        # They come first: of an inline function that several objects have, the linker takes the first.
        words = [word for word in self.links[program].split(" ") if word not in replaced]
        first = next(i for i, word in enumerate(words) if word.endswith(".o"))
        words[first:first] = [str(replaced[word]) for word in self.links[program].split(" ") if word in replaced]
        words[words.index("-o") + 1] = str(output)
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["sh", "-c", " ".join(words).replace(" -o ", f" {options} -o ", 1)], cwd=self.folder, check=True)
