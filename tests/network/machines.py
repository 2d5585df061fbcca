"""Machines on one: network namespaces, each with a TAP that a switch in user space joins with the others'."""

import os, pathlib, shutil, subprocess, sys, tempfile

from switch import Switch, mac, open_tap

PORT = 29400


class Unavailable(Exception):
    """There can be no such machines here; the message says why."""


def check_available():
    if os.geteuid() != 0:
        raise Unavailable("only root makes network namespaces")
    if not shutil.which("ip"):
        raise Unavailable("there is no program ip (iproute2)")
    try:
        Machines(2).close()
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"{getattr(error, 'stderr', None) or error}".strip())


class Machines:
    def __init__(self, count, seed=1):
        self.names = [f"ringgrad-{os.getpid()}-{i}" for i in range(count)]
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="ringgrad-network-"))
        self.processes, self.switch, taps = [], None, []
        try:
            for i, name in enumerate(self.names):
                ip("netns", "add", name)
                tap, cable = f"rg{os.getpid() % 10**7}n{i}", f"cable{i}"  # its name is the machine's own
                taps.append(open_tap(tap))
                ip("link", "set", tap, "netns", name, "name", cable)
                lines = [f"link set {cable} address {mac(i).hex(':')} mtu 9000", "link set lo up",
                         f"address add {address(i)}/24 dev {cable}", f"address add {link_local(i)}/64 dev {cable} nodad",
                         f"link set {cable} addrgenmode none", f"link set {cable} up"]
                ip("-n", name, "-batch", "-", input="\n".join(lines))
        except (OSError, subprocess.CalledProcessError):
            for tap in taps:
                os.close(tap)
            self.close()
            raise
        self.switch = Switch(taps, seed)

    def start(self, machine, command, environment, hosts="", stderr=subprocess.STDOUT):
        """A process on the machine; `hosts`: what it has in /etc/hosts."""
        where = ["ip", "netns", "exec", self.names[machine]]
        if hosts:
            file = self.directory / f"hosts{machine}"
            file.write_text(hosts)
            where += ["sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', file]
        process = subprocess.Popen([*where, *command], stdout=subprocess.PIPE, stderr=stderr, text=True,
                                   cwd=self.directory, env={**os.environ, **environment})
        self.processes.append(process)
        return process

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        if self.switch:
            self.switch.stop()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        shutil.rmtree(self.directory, ignore_errors=True)


def ip(*words, **options):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True, **options)


def address(machine):
    return f"10.232.0.{machine + 1}"


def link_local(machine):
    return f"fe80::{machine + 1}"
