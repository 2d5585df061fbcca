#!/usr/bin/env python3
"""Attacks on the program, for as long as it is told: attack.py PATH_TO_RINGGRAD KIND [SECONDS [SEED]].

KIND is a file here without its "on_": ranks, files, data, words, limits, ports, wires. Its functions are
attacks. Each trial takes one of them, and draws from a generator of its own, whose seed is printed if the trial fails. SECONDS (default 5) is when the last trial begins; 0 means one trial, the one of SEED.
The last line is a JSON object: trials, failures, worst time.
"""

import importlib
import inspect
import json
import pathlib
import random
import shutil
import sys
import tempfile
import time
import traceback

from job import Job


def attacks_in(kind):
    module = importlib.import_module("on_" + kind)
    return [f for name, f in inspect.getmembers(module, inspect.isfunction)
            if f.__module__ == module.__name__ and not name.startswith("_")]


def trial(program, attacks, seed, scratch):
    """None, or what went wrong; and how long it took. A failed trial's directory is kept."""
    generator = random.Random(seed)
    attack = generator.choice(attacks)
    directory = pathlib.Path(tempfile.mkdtemp(prefix=f"{attack.__name__}-", dir=scratch))
    job = Job(program, directory)
    begin = time.monotonic()
    try:
        attack(job, generator)
        job.check_nothing_is_left()
        wrong = None
    except Exception:
        wrong = f"{attack.__name__}, seed {seed}, in {directory}\n{traceback.format_exc()}{job.log()}"
    finally:
        job.end()
    if wrong is None:
        shutil.rmtree(directory)
    return wrong, time.monotonic() - begin


def main(program, kind, seconds="5", seed="1"):
    attacks, first, until = attacks_in(kind), int(seed), time.monotonic() + float(seconds)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="ringgrad-attack-"))
    trials = failures = 0
    worst = 0.0
    while trials == 0 or time.monotonic() < until:
        wrong, took = trial(pathlib.Path(program).resolve(), attacks, first + trials, scratch)
        trials, failures, worst = trials + 1, failures + (wrong is not None), max(worst, took)
        if wrong:
            print(wrong, file=sys.stderr)
    if failures == 0:
        shutil.rmtree(scratch)
    print(json.dumps({"kind": kind, "trials": trials, "failures": failures, "worst_seconds": round(worst, 2)}))
    return failures > 0


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4, 5):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
