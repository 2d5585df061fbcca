#!/usr/bin/env python3
"""Measures all-reduce over links: machines are network namespaces, and a switch in user space (tests/network) gives each of them
a cable of a certain bandwidth and latency. `ringgrad bench allreduce`, Gloo (through PyTorch) and the MPI library of mpicc run in
turn. Writes bench/results/links.json. As root.

    links.py PYTHON [--rounds N] [--links WORDS] [--machines N…] [--sizes BYTES…] [--who NAME…] [--algorithm NAME]

PYTHON can import torch. With any of the last five options it prints its measurements, and writes no table.

The bound of N machines that all-reduce S bytes is L + 2 (N-1)/N · S/B, for a latency L and a bandwidth B. No byte arrives
before L, and each machine must receive so many (Patarasuk & Yuan 2009). Headers of packets are not counted.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

import results

sys.path.insert(0, str(results.ROOT / "tests" / "network"))
from machines import PORT, Machines, address, check_available

PEERS = results.ROOT / "bench" / "peers"
LINKS = {"100 Mbit/s, 1 ms": (12.5e6, 1e-3), "1 Gbit/s, 0.1 ms": (125e6, 1e-4), "100 Mbit/s, 20 ms": (12.5e6, 20e-3)}
MACHINES = [2, 4, 8]
FASTEST = 250e6  # bytes a second to all machines together: more would measure the switch's processor
SIZES = [1 << 10, 16 << 10, 128 << 10, 1 << 20, 4 << 20, 64 << 20]
LONGEST = 4.0  # seconds of one repetition, by the bound; larger sizes are left out
FEW_FROM = 0.2  # what takes longer is repeated twice
WHO = ["ringgrad", "gloo", "mpi"]


def bound(link, machines, size):
    rate, latency = LINKS[link]
    return latency + 2 * (machines - 1) / machines * size / rate


def size_name(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


class Laboratory:
    def __init__(self, link, count):
        self.link, self.count = link, count
        self.machines = Machines(count)
        for i, name in enumerate(self.machines.names):
            # A machine's packets wait at its own end of the cable. A frame and a half may leave at once, or what makes up
            # for a timer that is 0.2 ms late. TCP's algorithm is one that every machine has.
            burst = max(13_000, 2e-4 * LINKS[link][0])
            inside = ["ip", "netns", "exec", name]
            subprocess.run([*inside, *f"tc qdisc add dev cable{i} root tbf rate {8 * LINKS[link][0]:.0f}bit burst {burst:.0f} limit 1g".split()],
                           check=True)
            subprocess.run([*inside, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno"], check=True)
        self.machines.switch.rate, delay = LINKS[link]
        self.machines.switch.set(None, delay=delay)

    def start(self, machine, command, environment, hosts=""):
        command = ["chrt", "--rr", "1", *command]
        return self.machines.start(machine, [str(word) for word in command], {key: str(value) for key, value in environment.items()},
                                   hosts, stderr=subprocess.PIPE)

    def ends(self, processes):
        """The output of each, once all have ended well."""
        outputs = [process.communicate(timeout=1800) for process in processes]
        for process, (_, errors) in zip(processes, outputs):
            if process.returncode != 0:
                sys.exit(f"{process.args}: {errors}")
        return [output for output, _ in outputs]

    def ranks(self, command, environment={}):
        """Starts the command as a rank on every machine, and returns the rows that rank 0 prints."""
        processes = []
        for rank in range(self.count):
            own = {"RANK": rank, "WORLD_SIZE": self.count, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "MASTER_ADDR": address(0),
                   "MASTER_PORT": PORT, "RINGGRAD_SECRET": "a secret of the laboratory", "GLOO_SOCKET_IFNAME": f"cable{rank}"}
            processes.append(self.start(rank, command, {**own, **environment}))
        return json.loads(self.ends(processes)[0])

    def few_and_many(self, sizes):
        for few in (False, True):
            if chosen := [size for size in sizes if (bound(self.link, self.count, size) >= FEW_FROM) == few]:
                yield few, chosen

    def ringgrad(self, sizes, options):
        rows = []
        for size in sizes:
            times = ["-n", 2, "-w", 0] if bound(self.link, self.count, size) >= FEW_FROM else ["-n", 10, "-w", 2]
            rows += self.ranks([results.RINGGRAD, "bench", "allreduce", "--json", "--transport", "tcp", "-b", size, "-e", size,
                                "--algorithm", options.algorithm, *times])["rows"]
        return rows

    def gloo(self, sizes, options):
        return [row for few, chosen in self.few_and_many(sizes)
                for row in self.ranks([options.python, PEERS / "allreduce_gloo.py", "--seconds", 0.3, "--least", 2 if few else 9,
                                       "--sizes", *chosen])["rows"]]

    def mpi(self, sizes, options):
        """mpirun on the first machine starts the others' through an agent in ssh's place."""
        directory, names = self.machines.directory, self.machines.names
        program, agent = directory / "allreduce_mpi", directory / "agent"
        subprocess.run(["mpicc", "-O3", "-march=native", PEERS / "allreduce_mpi.c", "-o", program], check=True)
        agent.write_text('#!/bin/sh\nhost=$1; shift\nexec ip netns exec "$host" unshare --uts sh -c "hostname $host; $*"\n')
        agent.chmod(0o755)
        hosts = "127.0.0.1 localhost\n" + "".join(f"{address(i)} {name}\n" for i, name in enumerate(names))
        network = address(0).rsplit(".", 1)[0] + ".0/24"
        settings = {"plm_rsh_agent": agent, "pml": "ob1", "btl": "tcp,self", "btl_tcp_if_include": network,
                    "oob_tcp_if_include": network, "mpi_yield_when_idle": 1}
        rows = []
        for few, chosen in self.few_and_many(sizes):
            command = ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', names[0], "mpirun", "--allow-run-as-root",
                       "--bind-to", "none", "-n", self.count, "--host", ",".join(names),
                       *(word for name, value in settings.items() for word in ("--mca", name, value)),
                       program, 0.3, 2 if few else 9, *chosen]
            rows += json.loads(self.ends([self.start(0, command, {}, hosts)])[0])["rows"]
        return rows


def measured(link, count, options):
    """Milliseconds by who, size and round."""
    sizes = [size for size in options.sizes or SIZES if bound(link, count, size) <= LONGEST]
    times = {who: {size: [] for size in sizes} for who in options.who or WHO}
    laboratory = Laboratory(link, count)
    try:
        for _ in range(options.rounds):
            for who in times:
                for row in getattr(laboratory, who)(sizes, options):
                    assert row["wrong"] == 0, (who, row)
                    times[who][row["bytes"]].append(row["time_us"] / 1e3)
                    share = 1e3 * bound(link, count, row["bytes"]) / times[who][row["bytes"]][-1]
                    print(f"{link}, {count} machines {size_name(row['bytes']):>8} {who:9}{times[who][row['bytes']][-1]:10.2f} ms, "
                          f"{100 * share:5.1f} % of the bound", file=sys.stderr, flush=True)
    finally:
        laboratory.machines.close()
    return {who: {str(size): values for size, values in row.items()} for who, row in times.items()}


def cell(link, count, size, times):
    if not times["ringgrad"].get(str(size)):
        return "–"
    own = times["ringgrad"][str(size)]
    share = 1e3 * bound(link, count, size) / statistics.median(own)
    ratios = [statistics.median(theirs / ours for ours, theirs in zip(own, times[who][str(size)])) for who in ("gloo", "mpi")]
    return f"{100 * share:.0f} % ({', '.join(f'{ratio:.1f}×' for ratio in ratios)})"


def note(rounds):
    return ("Machines are network namespaces, and a switch in user space gives each a cable of that bandwidth in each direction, and "
            "that latency from machine to machine. The bound is the latency and the time to receive 2 (N-1)/N of the bytes. A "
            "machine's first 13 kB (26 at 1 Gbit/s) may leave at once, so a few kilobytes can beat it. Medians of "
            f"{' or '.join(map(str, sorted(rounds)))} rounds in turn.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--links", default="")
    parser.add_argument("--machines", type=int, nargs="*")
    parser.add_argument("--sizes", type=int, nargs="*")
    parser.add_argument("--who", nargs="*")
    parser.add_argument("--algorithm", default="auto")
    options = parser.parse_args()
    check_available()
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))  # the switch must not wait for a core
    chosen = [(link, count) for link in LINKS if options.links in link for count in options.machines or MACHINES
              if count * LINKS[link][0] <= FASTEST]
    if options.links or options.machines or options.sizes or options.who or options.algorithm != "auto":
        for link, count in chosen:
            measured(link, count, options)
        return
    table = {(link, count): results.once("links", f"{link} {count}".replace("/", " per "), lambda: measured(link, count, options))
             for link, count in chosen}
    rows = [[f"{link}, {count} machines", *(cell(link, count, size, times) for size in SIZES)]
            for (link, count), times in table.items()]
    results.save(
        "links", "All-reduce of float32 between machines: the bound's share of the time, and how many times faster it is than Gloo "
        "and Open MPI", ["", *map(size_name, SIZES)], rows,
        {"Gloo in PyTorch": subprocess.run([options.python, "-c", "import torch; print(torch.__version__)"], capture_output=True,
                                           text=True, check=True).stdout.strip()},
        note=note({len(values) for times in table.values() for row in times.values() for values in row.values()}),
        details={f"{link}, {count} machines": times for (link, count), times in table.items()})


if __name__ == "__main__":
    main()
