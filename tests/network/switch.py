"""A switch in user space: passes Ethernet frames between TAPs, and does to them on their way what networks do."""

import fcntl, heapq, os, random, select, struct, threading, time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
SYN, RST, ACK = 2, 4, 16


def open_tap(name):
    """The TAP's descriptor; its interface appears in this network namespace. Throws OSError."""
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    except OSError:
        os.close(tap)
        raise
    return tap


def mac(machine):
    return bytes([2, 0, 0, 0, 0, machine + 1])


class Segment:
    """A TCP segment over IPv4 in an Ethernet frame."""

    def __init__(self, frame):
        self.frame = frame
        self.begin = 14 + (frame[14] & 15) * 4
        self.source, self.target, self.sequence, self.acknowledged = struct.unpack_from("!HHII", frame, self.begin)
        self.flags = frame[self.begin + 13]

    @staticmethod
    def of(frame):
        return Segment(frame) if len(frame) >= 54 and frame[12:14] == b"\x08\x00" and frame[23] == 6 else None

    def flow(self):
        return tuple(sorted([(self.frame[26:30], self.source), (self.frame[30:34], self.target)]))

    def reset(self):
        """The answer of a firewall that does not know the connection: RST in the other end's name."""
        ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40, 0, 0, 64, 6, 0, self.frame[30:34], self.frame[26:30])
        ip = ip[:10] + checksum(ip) + ip[12:]
        tcp = struct.pack("!HHIIBBHHH", self.target, self.source, self.acknowledged, 0, 0x50, RST, 0, 0, 0)
        tcp = tcp[:16] + checksum(ip[12:] + struct.pack("!HH", 6, 20) + tcp) + tcp[18:]
        return self.frame[6:12] + self.frame[:6] + b"\x08\x00" + ip + tcp


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!H", ~total & 0xFFFF)


class Way:
    """From one machine to another. Seconds, and shares of all frames."""

    def __init__(self):
        self.cut, self.delay, self.jitter = False, 0.0, 0.0
        self.lost = self.doubled = self.damaged = 0.0


class Switch:
    """Frames go from taps[i] to the machine whose address is mac(j), or to all others, by the way (i, j)."""

    def __init__(self, taps, seed=1):
        self.taps, self.random = taps, random.Random(seed)
        self.ways = {(i, j): Way() for i in range(len(taps)) for j in range(len(taps)) if i != j}
        self.rate, self.room = None, 512 << 10  # bytes a second to each machine, and bytes that wait for its cable
        self.free_at = [0.0] * len(taps)  # when each machine's cable has carried what waits
        self.forgets = None  # a firewall's patience with connections on which nothing comes, in seconds
        self.seen = {}  # when, by connection
        self.on_segment = None  # called with each TCP segment before anything is done to it
        self.late, self.count, self.stopped = [], 0, False
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def set(self, pairs, **properties):
        """Sets properties of the ways (i, j) in `pairs`, or of all if it is None."""
        for way in self.ways if pairs is None else pairs:
            for name, value in properties.items():
                assert hasattr(self.ways[way], name), name
                setattr(self.ways[way], name, value)

    def stop(self):
        self.stopped = True
        self.thread.join()
        for tap in self.taps:
            os.close(tap)

    def serve(self):
        while not self.stopped:
            wait = min(0.05, max(0, self.late[0][0] - time.monotonic())) if self.late else 0.05
            for tap in select.select(self.taps, [], [], wait)[0]:
                for frame in self.read(tap):
                    self.take(self.taps.index(tap), frame)
            while self.late and self.late[0][0] <= time.monotonic():
                _, _, port, frame = heapq.heappop(self.late)
                self.give(port, frame)

    def read(self, tap):
        for _ in range(64):
            try:
                yield os.read(tap, 65536)
            except (BlockingIOError, OSError):
                return

    def give(self, port, frame):
        try:
            os.write(self.taps[port], frame)
        except OSError:  # its queue is full, or the machine is down: as on any line
            pass

    def take(self, port, frame):
        segment = Segment.of(frame) if self.on_segment or self.forgets else None
        if segment and self.on_segment:
            self.on_segment(segment)
        if segment and self.forgets and not self.knows(segment):
            return self.give(port, segment.reset())
        others = [p for p in range(len(self.taps)) if p != port]
        known = [p for p in others if frame[:6] == mac(p)]
        for target in known or (others if frame[0] & 1 else []):
            self.send(port, target, frame)

    def knows(self, segment):
        now, flow = time.monotonic(), segment.flow()
        known = segment.flags & (SYN | RST) or now - self.seen.get(flow, -1e9) < self.forgets
        if known:
            self.seen[flow] = now
        return known

    def send(self, port, target, frame):
        way = self.ways[port, target]
        if way.cut or self.random.random() < way.lost:
            return
        if self.random.random() < way.damaged:
            at = self.random.randrange(34, len(frame)) if len(frame) > 34 else 0
            frame = frame[:at] + bytes([frame[at] ^ 1 << self.random.randrange(8)]) + frame[at + 1 :]
        at = time.monotonic() + way.delay + way.jitter * self.random.random()
        if self.rate:
            if (self.free_at[target] - at) * self.rate > self.room:
                return
            # It is passed on while it arrives: its last bit may be there at once if no other frame is before it.
            at = self.free_at[target] = max(at, self.free_at[target] + len(frame) / self.rate)
        for _ in range(1 + (self.random.random() < way.doubled)):
            if not (way.delay or way.jitter or self.rate):
                self.give(target, frame)
            else:
                self.count += 1
                heapq.heappush(self.late, (at, self.count, target, frame))
