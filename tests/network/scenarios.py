#!/usr/bin/env python3
"""Training on two to four machines while the network between them does what networks do: a table of scenarios, each with
the end that it must have. scenarios.py PATH_TO_RINGGRAD [--long] [NAME…]

A job ends with the bits of an undisturbed one, or on every machine in words that name the culprit. Exits with 77, saying
why, where a machine cannot be a network namespace with a TAP.
"""

import argparse, concurrent.futures, dataclasses, hashlib, itertools, multiprocessing, os, pathlib, re, secrets, signal, subprocess
import sys, tempfile, time

from machines import PORT, Machines, Unavailable, address, check_available, link_local

SAME = "the same bits"


@dataclasses.dataclass
class Scenario:
    name: str
    fault: list  # (seconds after `when`, what is done to the laboratory)
    end: object = SAME  # or what each machine must say, by machine: None, or (exit codes, words)
    when: str = "start"  # start, training; or meeting or connecting, and which of its segments is the first to meet the fault
    machines: int = 2
    timeout: float = 60
    train: tuple = ("--max-steps", "12")
    environment: dict = dataclasses.field(default_factory=dict)  # by machine; None: of all
    hosts: str = ""
    master: str = address(0)  # CABLE: the machine's interface
    cut: frozenset = frozenset()  # pairs that do not reach each other: no others may be named
    seconds: float = 60  # at most, from the fault to the end
    long: bool = False


def set_ways(pairs=None, **properties):
    return lambda laboratory: laboratory.machines.switch.set(pairs, **properties)


def outage(seconds):
    return [(0, set_ways(cut=True)), (seconds, set_ways(cut=False))]


FOREVER = ("--epochs", "1000", "--log-every", "1")


def firewall(seconds):
    def forget(laboratory):
        laboratory.machines.switch.forgets = seconds

    return [(0, forget)]


def kill(machine, number=signal.SIGKILL):
    return lambda laboratory: laboratory.processes[machine].send_signal(number)


def on_all(machines, codes, words):
    return {machine: (codes, words) for machine in range(machines)}


def do_not_reach(*pairs):
    return "|".join(f"rank {a} and rank {b} do not reach each other; both reach rank" for a, b in pairs)


def cut_links(machines, pairs, when, ways="both", long=True):
    """Every machine names a pair that is cut, and none that is not."""
    names = ", ".join(f"{a}-{b}" for a, b in pairs)
    directions = {"both": [*pairs, *((b, a) for a, b in pairs)], "up": pairs, "down": [(b, a) for a, b in pairs]}[ways]
    while_ = "they connect" if when == "start" else "they train"
    train = (FOREVER if when == "training" else ()) + {3: ("--batch", "126"), 4: ()}[machines]
    return Scenario(f"{machines} machines without {names} ({ways} ways) while {while_}", [(0, set_ways(directions, cut=True))],
                    end=on_all(machines, {6}, do_not_reach(*pairs)), when=when, machines=machines, timeout=4, train=train,
                    cut=frozenset(pairs), seconds=15, long=long)


def subsets(pairs):
    return (chosen for count in range(1, len(pairs) + 1) for chosen in itertools.combinations(pairs, count))


SLOW = {None: {"RINGGRAD_SLOW": "0:data:9000"}}
SCENARIOS = [
    Scenario("undisturbed", []),
    *(Scenario(f"an outage of 6 s while ranks are {when}, from segment {segment} on", outage(6), when=f"{when} {segment}",
               long=(when, segment) not in (("connecting", 7), ("meeting", 4))) for when, segments in (("meeting", 9), ("connecting", 20))
      for segment in range(1, segments + 1)),
    Scenario("a fifth of all frames is lost", [(0, set_ways(lost=0.2))], seconds=100, long=True),
    Scenario("a tenth of all frames is lost", [(0, set_ways(lost=0.1))]),
    Scenario("a firewall forgets silent connections", firewall(7), train=("--max-steps", "2"), environment=SLOW),
    Scenario("rank 0's name is 127.0.1.1 first", [], master="first", hosts=f"127.0.0.1 localhost\n127.0.1.1 first\n{address(0)} first\n"),
    Scenario("a name that leads to a dead address first", [], master="first",
             hosts=f"127.0.0.1 localhost\n10.232.0.77 first\n{address(0)} first\n"),
    Scenario("link-local addresses", [], master=link_local(0) + "%CABLE"),
    cut_links(3, [(1, 2)], "start", long=False),
    cut_links(3, [(1, 2)], "training", long=False),
    # While ranks connect, all of them reach rank 0: else they have not met.
    *(cut_links(3, [(1, 2)], "start", ways) for ways in ("up", "down")),
    *(cut_links(4, pairs, "start", ways) for ways in ("both", "up", "down") for pairs in subsets([(1, 2), (1, 3), (2, 3)])),
    *(cut_links(machines, [pair], "training", ways) for machines in (3, 4) for ways in ("both", "up", "down")
      for pair in itertools.combinations(range(machines), 2) if (machines, ways, pair) != (3, "both", (1, 2))),
    Scenario("late, out of order, doubled and damaged frames", [(0, set_ways(delay=0.005, jitter=0.02, doubled=0.02, damaged=0.01))],
             long=True),
    Scenario("a machine loses its power", [(0, set_ways([(0, 1), (1, 0)], cut=True))], when="training", timeout=3, train=FOREVER,
             end={0: ({6}, "rank 1 does not answer"), 1: ({6}, "rank 0 does not answer")}, seconds=10),
    Scenario("another machine's launcher dies", [(0, kill(1))], when="training", train=FOREVER,
             end={0: ({5}, "rank 1 died")}, seconds=5),
]


class Laboratory:
    def __init__(self, program, data, scenario):
        self.scenario, self.program = scenario, program
        self.machines = Machines(scenario.machines)
        self.environment = {"RINGGRAD_SECRET": secrets.token_hex(32), "RINGGRAD_THREADS": "1", "RINGGRAD_DATA_DIR": str(data)}
        self.processes, self.began, self.segments = [], None, 0

    def run(self):
        """Seconds from the fault to the last machine's end, and for each machine its exit code and words."""
        scenario = self.scenario
        faults = sorted(scenario.fault, key=lambda fault: fault[0])
        if scenario.when.startswith(("meeting", "connecting")):
            self.machines.switch.on_segment = self.count
        if scenario.when == "start":
            self.begin()
        for machine in range(scenario.machines):
            self.processes.append(self.start(machine))
        while self.began is None and self.alive():
            if scenario.when == "training" and (self.machines.directory / "run/metrics.jsonl").exists():
                self.begin()
            time.sleep(0.01)
        for after, fault in faults:
            while after > 0 and self.began and time.monotonic() < self.began + after and self.alive():
                time.sleep(0.01)
            if after > 0:
                fault(self)
        ends = []
        limit = (self.began or time.monotonic()) + scenario.seconds + scenario.timeout
        for process in self.processes:
            try:
                said, _ = process.communicate(timeout=max(1, limit - time.monotonic()))
                ends.append((process.returncode, said))
            except subprocess.TimeoutExpired:
                process.kill()
                ends.append((None, "is still there. It said: " + process.communicate()[0]))
        return time.monotonic() - (self.began or time.monotonic()), ends

    def alive(self):
        return all(process.poll() is None for process in self.processes)

    def begin(self):
        self.began = time.monotonic()
        for after, fault in self.scenario.fault:
            if after == 0:
                fault(self)

    def count(self, segment):
        """The fault comes before so many segments have passed."""
        what, number = self.scenario.when.split()
        self.segments += (PORT in (segment.source, segment.target)) == (what == "meeting")
        if self.began is None and self.segments == int(number):
            self.begin()

    def start(self, machine):
        scenario, own = self.scenario, {}
        for key in (None, machine):
            own.update(scenario.environment.get(key, {}))
        launch = ["--nnodes", scenario.machines, "--node-rank", machine, "--master-addr", scenario.master.replace("CABLE", f"cable{machine}"),
                  "--master-port", PORT, "--timeout", scenario.timeout]
        words = [self.program, "launch", "-n", 1, *launch, "--", self.program, "train", "--out", "run", "--transport", "tcp"]
        return self.machines.start(machine, [str(word) for word in [*words, *scenario.train]], {**self.environment, **own},
                                   scenario.hosts)

    def hash(self):
        return hashlib.sha256((self.machines.directory / "run/model.safetensors").read_bytes()).hexdigest()


def run(program, data, number):
    """Returns what is wrong with the end of that scenario, or None; the seconds since the fault; and the output."""
    scenario = SCENARIOS[number]
    laboratory = Laboratory(program, data, scenario)
    try:
        seconds, ends = laboratory.run()
        words = "\n".join(f"machine {machine}: {code}: {said}" for machine, (code, said) in enumerate(ends))
        if laboratory.began is None:
            return "the fault never came", seconds, words
        if scenario.end == SAME:
            if any(code != 0 for code, _ in ends):
                return "it failed", seconds, words
            if laboratory.hash() != undisturbed(program, data, scenario):
                return "it has other bits", seconds, words
        else:
            for machine, (codes, expected) in scenario.end.items():
                code, said = ends[machine]
                if code not in codes or not re.search(expected, said):
                    return f"machine {machine} ended with {code}, expected one of {codes} and '{expected}'", seconds, words
        for a, b in re.findall(r"rank (\d) and rank (\d) do not reach", words):
            if (int(a), int(b)) not in scenario.cut:
                return f"rank {a} and rank {b} are said not to reach each other", seconds, words
        if seconds > scenario.seconds:
            return f"it took {seconds:.1f} s, expected at most {scenario.seconds}", seconds, words
        return None, seconds, words
    finally:
        laboratory.machines.close()


def undisturbed(program, data, scenario):
    """The model's hash after the same training on one machine."""
    with tempfile.TemporaryDirectory(prefix="ringgrad-network-") as directory:
        command = [program, "launch", "-n", scenario.machines, "--", program, "train", "--out", "run", "--transport", "tcp",
                   *scenario.train]
        subprocess.run([str(word) for word in command], cwd=directory, check=True, capture_output=True,
                       env={**os.environ, "RINGGRAD_THREADS": "1", "RINGGRAD_DATA_DIR": str(data)})
        return hashlib.sha256((pathlib.Path(directory) / "run/model.safetensors").read_bytes()).hexdigest()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--long", action="store_true", help="also those that take long")
    parser.add_argument("--at-once", type=int, default=6)
    parser.add_argument("names", nargs="*", help="scenarios with these words in their names")
    options = parser.parse_args()
    try:
        check_available()
    except Unavailable as reason:
        print(f"skipped: no machines with a network can be made here: {reason}")
        return 77
    program = options.program.resolve()
    chosen = [s for s in SCENARIOS if (options.long or not s.long) and (not options.names or any(n in s.name for n in options.names))]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="ringgrad-network-") as data:
        subprocess.run([program, "data", "make", "digits", "--data-dir", data], check=True, capture_output=True)
        # A process each: its switch must not wait for another's.
        with concurrent.futures.ProcessPoolExecutor(options.at_once, multiprocessing.get_context("fork")) as pool:
            runs = {pool.submit(run, program, data, SCENARIOS.index(scenario)): scenario for scenario in chosen}
            for done in concurrent.futures.as_completed(runs):
                wrong, seconds, words = done.result()
                print(f"{'ok    ' if wrong is None else 'FAILED'} {seconds:6.1f} s  {runs[done].name}{': ' + wrong if wrong else ''}", flush=True)
                if wrong:
                    failed += 1
                    print("    " + words.strip().replace("\n", "\n    "), flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} scenarios end as they must")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
