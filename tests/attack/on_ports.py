"""Strangers at the port where ranks meet: they talk nonsense, say nothing, or come in crowds. The job does not notice."""

import contextlib
import os
import socket
import threading


def _knock(port, random, over, connected):
    silent = []
    while not over.is_set():
        try:
            stranger = socket.create_connection(("127.0.0.1", port), timeout=0.1)
        except OSError:
            continue
        with contextlib.suppress(OSError):
            stranger.sendall(random.choice((b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 500, random.randbytes(60), b"RGSh" * 30, b"")))
        silent.append(stranger)
        connected.append(1)
        if len(silent) > 100 or random.random() < 0.5:
            silent.pop(0).close()
    for stranger in silent:
        stranger.close()


def strangers(job, random):
    job.write_data()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    over, connected = threading.Event(), []
    crowd = [threading.Thread(target=_knock, args=(port, random, over, connected)) for _ in range(random.randrange(1, 4))]
    for thread in crowd:
        thread.start()
    try:
        said = job.run("launch", "-n", random.choice((2, 3)), "--master-port", port, "--", os.fspath(job.program), "train",
                       "--batch", 12, "--max-steps", 3, "--out", "run")
    finally:
        over.set()
        for thread in crowd:
            thread.join()
    job.check_same_bits(said)
