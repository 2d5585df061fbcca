"""Helpers of the tests of the program `ringgrad`: they run it as a person would, and look at its output and files."""

import hashlib, html.parser, json, os, pathlib, pty, select, shutil, signal, struct, subprocess, sys, tempfile, time, unittest

from page_structure import breaches

PROGRAM = pathlib.Path(sys.argv[1]).resolve()

# A shell's background jobs ignore Ctrl-C, and what nohup starts the end of its terminal. So would all that is started here.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def sha256(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def write_idx(path, *sizes, element=lambda i: i % 251):
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 1
    for size in sizes:
        count *= size
    header = struct.pack(f">BBBB{len(sizes)}I", 0, 0, 8, len(sizes), *sizes)
    path.write_bytes(header + bytes(element(i) for i in range(count)))


def write_tiny(folder, train=48, test=12, side=28):
    """A data set of MNIST's form, in which nothing can be learnt, but everything takes no time."""
    for prefix, n in (("train", train), ("t10k", test)):
        write_idx(folder / f"{prefix}-images-idx3-ubyte", n, side, side)
        write_idx(folder / f"{prefix}-labels-idx1-ubyte", n, element=lambda i: i % 10)


def rewrite_safetensors(path, rename=lambda name: name, progress_to=None, **progress):
    """Changes names or progress in a checkpoint and drops the hashes, which would differ."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    about = {key: value for key, value in header.pop("__metadata__").items() if not key.startswith("sha256")}
    if "progress" in about:
        about["progress"] = json.dumps(progress_to or {**json.loads(about["progress"]), **progress})
    text = json.dumps({"__metadata__": about, **{rename(name): entry for name, entry in header.items()}}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def read_safetensors(path):
    """Returns the bytes of each tensor, and the metadata."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    about = header.pop("__metadata__", {})
    return {name: data[8 + length + entry["data_offsets"][0] : 8 + length + entry["data_offsets"][1]]
            for name, entry in header.items()}, about


def all_from_terminal(ours, its, child):
    """All that a process has written to its terminal once it has ended; closes both sides. Reading until the last writer
    has gone may lose what the kernel has not passed on by then: so the end is something written behind it."""
    end, text, ended = b"<the end>", b"", False
    while not text.endswith(end):
        if select.select([ours], [], [], 0.05)[0]:
            text += os.read(ours, 65536)
        elif not ended and child.poll() is not None:
            ended = os.write(its, end)
    os.close(its), os.close(ours)
    return text[: -len(end)]


def change_tensor(path, name, values=None, dtype=None):
    """Other bytes at a tensor's beginning, or another dtype, in a safetensors file; without the hashes."""
    rewrite_safetensors(path)
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    if dtype:
        header[name]["dtype"] = dtype
    content = bytearray(data[8 + length :])
    if values:
        begin = header[name]["data_offsets"][0]
        content[begin : begin + 4 * len(values)] = struct.pack(f"<{len(values)}f", *values)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content)


def change_memory(pid, pattern):
    """Flips a bit of every occurrence of these bytes in what a process has written."""
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            addresses, rights = line.split()[:2]
            begin, end = (int(address, 16) for address in addresses.split("-"))
            if not rights.startswith("rw"):
                continue
            try:
                memory.seek(begin)
                content = memory.read(end - begin)
                at = content.find(pattern)
                while at >= 0:
                    memory.seek(begin + at)
                    memory.write(bytes([pattern[0] ^ 1]))
                    at = content.find(pattern, at + 1)
            except OSError:  # it has gone since
                continue


class HtmlChecker(html.parser.HTMLParser):
    """Collects the elements of a page, and checks that every opened one is closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.addresses = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [value for name, value in attributes
                           if name in ("src", "href", "xlink:href", "action") and not value.startswith("#")]
        if tag not in ("meta", "br", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [value for name, value in attributes
                           if name in ("src", "href", "xlink:href", "action") and not value.startswith("#")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes something else"


class ProgramCase(unittest.TestCase):
    """Each test runs in a directory of its own; `shared` is where its data sets lie."""

    shared = "data"

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ringgrad-test-"))
        self.addCleanup(shutil.rmtree, self.dir)

    def run_program(self, *words, code=0, **options):
        environment = {**os.environ, "RINGGRAD_DATA_DIR": self.shared, **options.pop("env", {})}
        options = {"cwd": self.dir, **options}
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, env=environment, timeout=120, **options)
        self.assertEqual(done.returncode, code, f"{words}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}")
        return done

    def on_a_terminal(self, *words, env={}):
        """Returns the program's output on a terminal of 80 columns, with escapes."""
        ours, its = pty.openpty()
        child = subprocess.Popen([PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=its, stderr=subprocess.DEVNULL,
                                 cwd=self.dir, env={**os.environ, "RINGGRAD_DATA_DIR": self.shared, "TERM": "xterm", **env})
        text = all_from_terminal(ours, its, child)
        self.assertEqual(child.wait(timeout=60), 0, text)
        return text.decode().replace("\r\n", "\n")

    def read_page(self, path):
        """Returns a page's text, once it has what every page must have."""
        text = (self.dir / path).read_text()
        self.assertEqual(breaches(text), [])
        return text

    def start(self, *words, **options):
        options = {"env": {**os.environ, "RINGGRAD_DATA_DIR": self.shared}, **options}
        child = subprocess.Popen([PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.dir, **options)
        self.addCleanup(child.kill)  # if the test fails before it has ended
        return child

    def wait_for(self, path):
        deadline = time.time() + 60
        while not (self.dir / path).exists() and time.time() < deadline:
            time.sleep(0.01)

    # A run short enough for a test: `steps` steps of a small batch.
    def short_run(self, out, steps, *words):
        return self.run_program("train", "--batch", "32", "--epochs", "1", "--out", out, "--max-steps", str(steps), *words)


class DigitsCase(ProgramCase):
    """The generated digits are made once for all tests."""

    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.mkdtemp(prefix="ringgrad-data-")
        done = subprocess.run([PROGRAM, "data", "make", "digits", "--data-dir", cls.shared], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.shared)
