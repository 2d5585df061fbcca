"""Data sets that are damaged, or made to harm."""

import struct

from on_files import _damage

REFUSED = (0, 1, 2, 4, 7)


def _use(job, random):
    words = random.choice((("train", "--batch", 12, "--max-steps", 2, "--parallel", "none", "--out", "run"),
                           ("train", "--batch", 12, "--max-steps", 2, "--ranks", 2, "--out", "run"),
                           ("data", "list")))
    job.run(*words, codes=REFUSED)


def idx(job, random):
    job.write_data()
    path = random.choice(sorted((job.directory / "data/digits").iterdir()))
    _damage(path, random)
    job.run("inspect", path, codes=REFUSED)
    _use(job, random)


def idx_header(job, random):
    """Sizes that overflow, or promise what is not there."""
    job.write_data()
    path = random.choice(sorted((job.directory / "data/digits").iterdir()))
    sizes = [random.choice((0, 1, 28, 2**16, 2**31 - 1, 2**31, 2**32 - 1)) for _ in range(random.randrange(5))]
    header = struct.pack(f">BBBB{len(sizes)}I", 0, 0, random.choice((8, 9, 13, 255)), random.choice((len(sizes), 255)), *sizes)
    path.write_bytes(header + random.randbytes(random.randrange(2000)))
    job.run("inspect", path, codes=REFUSED)
    _use(job, random)


def cifar(job, random):
    folder = job.directory / "data/cifar10"
    folder.mkdir(parents=True)
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        (folder / name).write_bytes(bytes([random.randrange(10), *random.randbytes(3072)]) * 4)
    _damage(random.choice(sorted(folder.iterdir())), random)
    job.run("inspect", random.choice(sorted(folder.iterdir())), codes=REFUSED)
    job.run("train", "--data", "cifar10", "--batch", 2, "--max-steps", 1, "--parallel", "none", codes=REFUSED)


def image(job, random):
    path = job.directory / random.choice(("image.png", "image.pgm", "image"))
    body = random.choice((b"\x89PNG\r\n\x1a\n", b"P5 28 28 255\n", b"P6 9999999999 1 255\n", b"")) + random.randbytes(800)
    path.write_bytes(body)
    job.write_data()
    job.run("train", "--batch", 12, "--max-steps", 1, "--parallel", "none", "--out", "run")
    job.run("predict", "run", path, codes=REFUSED)
