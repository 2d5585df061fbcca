"""A run's files are damaged: bits, bytes, lengths. What is damaged is refused by name, or has no effect; nothing crashes,
and nothing that was good is overwritten."""

import json

REFUSED = (0, 1, 2, 4)


def _damage(path, random):
    data = bytearray(path.read_bytes())
    at = random.randrange(len(data) if random.random() < 0.3 else min(len(data), 600))  # rather in the header
    match random.randrange(5):
        case 0:
            data[at] ^= 1 << random.randrange(8)
        case 1:
            del data[at:]
        case 2:
            data[at : at + 8] = random.randbytes(8)
        case 3:
            data[at:at] = random.choice((b"{", b'"', b"[", b"\0", b"9" * 30, b"-", b"\xff\xfe"))
        case 4:
            del data[at : at + random.randrange(1, 50)]
    path.write_bytes(data)


def _run(job, random):
    job.write_data()
    return job.run("train", "--batch", 12, "--max-steps", 2, "--parallel", "none", "--out", "run")


def _digests(job):
    return {path: path.read_bytes() for path in (job.directory / "run").iterdir() if path.is_file()}


def checkpoint(job, random):
    _run(job, random)
    path = job.directory / "run/checkpoint.safetensors"
    good = path.read_bytes()
    _damage(path, random)
    before = _digests(job)
    job.run("train", "--resume", "run", "--max-steps", 1, codes=REFUSED)
    if job.runs[-1].returncode:
        job.check_unchanged(before, _digests(job))
    path.write_bytes(good)


def weights(job, random):
    _run(job, random)
    path = job.directory / "run/model.safetensors"
    good = path.read_bytes()
    _damage(path, random)
    for words in (("inspect", path), ("eval", "run"), ("train", "--init", path, "--max-steps", 1, "--batch", 12, "--out", "run2")):
        job.run(*words, codes=REFUSED)
    path.write_bytes(good)


def config(job, random):
    _run(job, random)
    path = job.directory / "run/config.json"
    if random.random() < 0.5:
        _damage(path, random)
    else:  # well-formed, and wrong
        document = json.loads(path.read_text())
        field = random.choice(sorted(document))
        document[field] = random.choice((None, -1, 1e300, "", "x" * 5000, [], {}, [[[[]]]], True, 2**70))
        path.write_text(json.dumps(document))
    for words in (("eval", "run"), ("train", "--resume", "run", "--max-steps", 1)):
        job.run(*words, codes=(*REFUSED, 3))
