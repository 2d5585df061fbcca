#!/usr/bin/env python3
"""Training across two "hosts": network namespaces joined by a virtual cable. two_hosts_test.py PATH_TO_RINGGRAD

The same training ends with the same bytes there as on one host, and a cable that is pulled out ends it on both sides at
the deadline. Exits with 77, saying why, where namespaces may not be created.
"""

import hashlib, os, pathlib, secrets, shutil, subprocess, sys, tempfile, time, unittest

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
HOSTS = [f"ringgrad-{os.getpid()}-{i}" for i in range(2)]
ADDRESSES = ["10.231.0.1", "10.231.0.2"]


def ip(*words, **options):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True, **options)


def join_hosts():
    for host in HOSTS:
        ip("netns", "add", host)
        ip("-n", host, "link", "set", "lo", "up")
    ip("link", "add", "cable", "netns", HOSTS[0], "type", "veth", "peer", "name", "cable", "netns", HOSTS[1])
    for host, address in zip(HOSTS, ADDRESSES):
        ip("-n", host, "address", "add", address + "/24", "dev", "cable")
        ip("-n", host, "link", "set", "cable", "up")


class TwoHosts(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ringgrad-test-"))
        self.addCleanup(shutil.rmtree, self.dir)
        subprocess.run([PROGRAM, "data", "make", "digits", "--data-dir", self.dir / "data"], check=True, capture_output=True)
        self.environment = {**os.environ, "RINGGRAD_SECRET": secrets.token_hex(32), "RINGGRAD_THREADS": "1",
                            "RINGGRAD_DATA_DIR": str(self.dir / "data")}

    def start(self, host, ranks, out, *options, training=("--max-steps", "12")):
        where = ["ip", "netns", "exec", HOSTS[host]] if host is not None else []
        command = [*where, PROGRAM, "launch", "-n", str(ranks), *options, "--", PROGRAM, "train", "--out", out, *training]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.dir,
                                   env=self.environment)
        self.addCleanup(process.kill)
        return process

    def start_both(self, ranks, out, *options, **keywords):
        meeting = ["--nnodes", "2", "--master-addr", ADDRESSES[0], "--master-port", "29400"]
        return [self.start(i, ranks, out, *meeting, "--node-rank", str(i), *options, **keywords) for i in range(2)]

    def train_on_both(self, ranks, out, *options):
        said = ""
        for process in self.start_both(ranks, out, *options):
            out, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, out + err)
            said += out + err
        return said

    def model(self, out):
        return hashlib.sha256((self.dir / out / "model.safetensors").read_bytes()).hexdigest()

    def test_same_bytes_as_on_one_host(self):
        for ranks in (1, 2):
            one = self.start(None, 2 * ranks, f"one{ranks}", "--transport", "tcp")
            out, err = one.communicate(timeout=120)
            self.assertEqual(one.returncode, 0, err)
            self.train_on_both(ranks, f"two{ranks}", "--transport", "tcp")
            self.assertEqual(self.model(f"one{ranks}"), self.model(f"two{ranks}"))

    def test_two_ranks_on_each_host_add_in_shared_memory_first(self):
        for out in ("first", "second"):  # another order of additions than a ring of all has, but always the same
            self.assertIn("4 ranks (shared memory, and ring over tcp)", self.train_on_both(2, out))
        self.assertEqual(self.model("first"), self.model("second"))

    def test_a_cable_that_is_pulled_out(self):
        both = self.start_both(1, "cut", "--timeout", "2", training=("--epochs", "1000", "--log-every", "1"))
        while not (self.dir / "cut/metrics.jsonl").exists():  # steps are done
            self.assertIsNone(both[0].poll())
            time.sleep(0.05)
        ip("-n", HOSTS[0], "link", "set", "cable", "down")
        self.addCleanup(ip, "-n", HOSTS[0], "link", "set", "cable", "up")
        for i, process in enumerate(both):
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 6, out + err)
            self.assertIn(f"rank {1 - i} does not answer: it is stopped, starved, or cut off", out + err)


if __name__ == "__main__":
    try:
        try:
            join_hosts()
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"skipped: network namespaces cannot be created here: {getattr(error, 'stderr', None) or error}")
            sys.exit(77)
        result = unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2, exit=False).result
    finally:
        for host in HOSTS if shutil.which("ip") else []:
            subprocess.run(["ip", "netns", "del", host], capture_output=True)
    sys.exit(not result.wasSuccessful())
