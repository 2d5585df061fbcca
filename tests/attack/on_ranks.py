"""Ranks of a training job are killed, stopped, starved and interrupted at any moment, together with their launcher."""

import os
import signal
import time


def _training(job, random, **environment):
    """A job at a moment of its life, its ranks' process ids, and how to start the same again."""
    job.write_data()
    ranks, transport = random.choice((2, 3, 4)), random.choice(("auto", "tcp"))
    child = job.training(ranks, transport, environment=environment)
    pids = job.ranks_of(child, ranks)
    time.sleep(random.uniform(0, 0.6))
    return child, pids, (ranks, transport)


def _send(pid, what):
    try:
        os.kill(pid, what)
        return True
    except ProcessLookupError:  # it has ended before
        return False


def _go_on_to_the_end(job, said):
    """The run, resumed if there is a checkpoint, has the same bits at each epoch as before."""
    if (job.directory / "run/checkpoint.safetensors").exists():
        job.check_same_bits(said, job.run("train", "--resume", "run"))


def killed(job, random):
    child, pids, how = _training(job, random)
    victims = random.sample(range(len(pids)), min(len(pids), random.choice((1, 1, 2))))
    hit = [victim for victim in victims if _send(pids[victim], signal.SIGKILL)]
    said = job.finish(child, 5, 0)  # 0: it was done
    if child.returncode:
        job.check_one_cause(said, hit)
    _go_on_to_the_end(job, said)


def stopped(job, random):
    child, pids, how = _training(job, random, RINGGRAD_TIMEOUT="0.6")
    victims = pids if random.random() < 0.2 else pids[:1] if random.random() < 0.5 else pids[-1:]
    for pid in victims:
        _send(pid, signal.SIGSTOP)
    said = job.finish(child, 6, 0)
    for rank in range(len(pids)):
        if f"[rank {rank}] is stopped" not in said:
            job.check_not_accused(said, rank)


def stopped_for_a_while(job, random):
    child, pids, how = _training(job, random)
    for _ in range(random.randrange(1, 4)):
        some = random.sample(pids, random.randrange(len(pids)) + 1) if pids else []
        for pid in some:
            _send(pid, signal.SIGSTOP)
        time.sleep(random.uniform(0, 0.3))
        for pid in some:
            _send(pid, signal.SIGCONT)
    _go_on_to_the_end(job, job.finish(child, 0))


def interrupted(job, random):
    child, pids, how = _training(job, random)
    what = random.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    whom = random.choice([child.pid, *pids])
    _send(whom, what)
    said = job.finish(child, 128 + what, 0, *([5] if whom != child.pid else []))
    if child.returncode == 5:  # a rank that does not listen yet dies of it
        job.check_one_cause(said, [pids.index(whom)])
    _go_on_to_the_end(job, said)


def without_launcher(job, random):
    child, pids, how = _training(job, random)
    child.kill()
    job.finish(child, -signal.SIGKILL, 0)
