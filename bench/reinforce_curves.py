#!/usr/bin/env python3
"""Records how `ringgrad reinforce` learns, over five seeds, with one environment and with two: the running mean length of
the last hundred episodes, and the number of episodes until the task is solved (195 pushes of 200). Writes
bench/results/reinforce_curves.json.

    reinforce_curves.py [SEEDS]
"""

import statistics
import sys
import tempfile
from pathlib import Path

import results

EPISODES = [100, 200, 300, 400, 600, 800]  # columns
MOST = 2000


def run(seed, ranks):
    with tempfile.TemporaryDirectory() as scratch:
        return results.ringgrad("reinforce", "--seed", seed, "--ranks", ranks, "--episodes", MOST, "--out",
                                str(Path(scratch) / "run"))


def cell(run, episodes):
    """The curve at this number of episodes; it is blank if the task was solved before."""
    points = [point for point in run["curve"] if point["episodes"] <= episodes]
    return f"{points[-1]['mean_length']:.0f}" if points and run["episodes"] >= episodes else ""


def main():
    if len(sys.argv) > 2 or sys.argv[1:] and not sys.argv[1].isdigit():
        sys.exit(__doc__)
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    rows, runs = [], []
    for ranks in (1, 2):
        own = [results.once("reinforce_curves", f"{ranks}-{seed}", lambda: run(seed, ranks)) for seed in range(1, seeds + 1)]
        runs += own
        for seed, of in enumerate(own, 1):
            solved = [f"{of['episodes']:,}", f"{of['pushes_per_rank']:,}"] if of["solved"] else ["not solved", ""]
            rows.append([f"{ranks} rank{'s' * (ranks > 1)}, seed {seed}", *(cell(of, n) for n in EPISODES), *solved])
        if all(of["solved"] for of in own):
            median = lambda key: f"{statistics.median(of[key] for of in own):,.0f}"
            rows.append([f"{ranks} rank{'s' * (ranks > 1)}, median", *[""] * len(EPISODES), median("episodes"), median("pushes_per_rank")])
    results.save("reinforce_curves", "REINFORCE on the cart and pole: mean pushes of the last hundred episodes",
                 ["", *(f"after {n}" for n in EPISODES), "episodes to 195", "pushes on each rank"], rows, details=runs,
                 note="Each of two ranks has its own environment; every update of the policy uses both episodes.")


if __name__ == "__main__":
    main()
