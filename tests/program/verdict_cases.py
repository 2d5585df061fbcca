"""Trouble of every kind, put into a run: as tables of numbers, and into real runs where that is cheap. Each knows the
verdict that it must get. report_test.py goes through them, and bench/verdicts.py counts over many runs."""

import json

RECIPE = {"model": "cnn", "data": "digits", "batch": 128, "lr": 0.05, "epochs": 4}


def rank(data=0.1, forward=2.0, backward=3.5, waiting=0.2, optimizer=0.1, rest=0.05, starved=0.1, machine=12.5,
         buckets=((118000, 3.4),)):
    """A rank's milliseconds of a step; buckets as (bytes, ready): each is launched at once, and takes 0.2 ms."""
    return {
        "step_ms": {"data": data, "forward": forward, "backward": backward, "waiting": waiting, "optimizer": optimizer, "rest": rest},
        "starved_ms": starved, "processor_ms": 6.0, "machine_ms": machine, "page_faults": 0, "tensor_bytes": 30 << 20, "resident_bytes": 90 << 20,
        "sent_bytes": sum(size for size, _ in buckets),
        "buckets": [{"parameters": f"layer{b}.weight layer{b}.bias", "bytes": size, "ready_ms": ready, "launched_ms": ready,
                     "completed_ms": ready + 0.2} for b, (size, ready) in enumerate(buckets)],
    }


def epochs(*lines):
    """Lines of metrics.jsonl: (loss, test loss, test accuracy) of each epoch."""
    return [{"epoch": e, "step": 94 * e, "loss": loss, "test_loss": test, "test_accuracy": right, "images_per_second": 20000.0,
             "seconds": 0.6, "waiting_for_data": 0.01, "waiting_for_communication": 0.02}
            for e, (loss, test, right) in enumerate(lines, 1)]


LEARNS = epochs((0.70, 0.22, 0.93), (0.10, 0.06, 0.98), (0.05, 0.04, 0.99), (0.03, 0.04, 0.99))


def run(ranks=None, lines=LEARNS, recipe={}, division={}, **summary):
    """The files of a run that is healthy but for what is given."""
    ranks = ranks or [rank(), rank()]
    median = sum(ranks[0]["step_ms"].values())
    return {
        "config.json": {"version": "0.1.0", "recipe": {**RECIPE, **recipe}, "data_dir": "/nowhere", "seed": 1,
                        "division": {"parallel": "ddp", "ranks": len(ranks), "sync_bn": False, "device": "cpu",
                                     "transport": "auto", **division}},
        "metrics.jsonl": lines,
        "summary.json": {
            "version": "0.1.0", "command": "ringgrad train", "machine": "a machine, 2 cores", "data_digest": "12000 images, 0",
            "measured_steps": 373, "steps_per_epoch": 94, "train_seconds": 2.2, "test_seconds": 0.2, "save_seconds": 0.1,
            "images_per_second": 20000.0, "cores": 2, "threads": 1, "workers": 1, "throttled": 0.0, "memory_limit": 8 << 30,
            "ranks": ranks, "loss_curve": [[0.1, 2.0], [4.0, 0.03]],
            "step_histogram": {"low_ms": 5.5, "high_ms": 7.0, "median_ms": median, "p95_ms": 1.1 * median, "bins": [1, 2, 1]},
            "classes": list("0123456789"), "confusion": [20 * (i % 11 == 0) for i in range(100)], "worst": [], **summary},
    }


def write(files, folder):
    folder.mkdir(parents=True)
    for name, content in files.items():
        lines = content if name.endswith("l") else [content]
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


MANY = tuple((4000, 0.2 * b) for b in range(16))
LAYERS = tuple((400_000, 0.6 * b) for b in range(6))
LATE = tuple((400_000, 0.6 * b + (4.0 if b >= 2 else 0)) for b in range(6))
STALLS = {"low_ms": 1, "high_ms": 900, "median_ms": 2, "p95_ms": 30, "bins": [1]}

# name: (files, verdict, words of its reason)
TABLES = {
    "healthy, two ranks": (run(), "healthy", "computing"),
    "healthy, one process": (run([rank(waiting=0, buckets=())], division={"parallel": "none", "ranks": 1}, threads=2), "healthy", ""),
    "healthy, one of two devices waits unseen": (run([rank(waiting=0, buckets=())] * 2, division={"device": "cuda"}), "healthy",
                                                  "; waiting for other ranks was not measured apart"),
    "healthy, some waiting": (run([rank(waiting=0.5), rank(waiting=0.6)]), "healthy", ""),
    "healthy, ranks a little uneven": (run([rank(waiting=0.5), rank(backward=3.8)]), "healthy", ""),
    "healthy, label smoothing": (run(lines=epochs((1.2, 0.9, 0.9), (0.8, 0.7, 0.95), (0.65, 0.62, 0.97))), "healthy", ""),
    "healthy, own threads take turns": (run([rank(starved=1.5, machine=6.5, waiting=0, buckets=())],
                                            division={"parallel": "none", "ranks": 1}, threads=2), "healthy", ""),
    "healthy, one epoch": (run(lines=epochs((0.7, 0.25, 0.93))), "healthy", ""),
    "slow loader": (run([rank(data=4.0), rank(data=4.2)]), "input-bound", "1 loader thread"),
    "slow loader, one process": (run([rank(data=2.0, buckets=())], division={"parallel": "none", "ranks": 1}, threads=2), "input-bound", ""),
    "slow loader of one rank": (run([rank(waiting=6.2), rank(data=6.1)]), "straggler", "rank 1 waits for its data"),
    "slow compute of one rank": (run([rank(forward=9.0), rank(waiting=7.2)]), "straggler", "rank 0 computes"),
    "slow layer of one rank": (run([rank(waiting=4.2, buckets=LAYERS), rank(backward=7.5, buckets=LATE)]),
                               "straggler", "backward before layer2.weight"),
    "slow rank of four": (run([rank(waiting=3.0)] * 3 + [rank(backward=6.5)], cores=4), "straggler", "rank 3"),
    "one rank without its core": (run([rank(waiting=3.2), rank(backward=6.5, starved=3.1)]),
                                  "straggler", "rank 1 stands in line"),
    "tiny buckets": (run([rank(waiting=2.0, buckets=MANY)] * 2), "small-buckets", "16 buckets"),
    "tiny buckets that are hidden": (run([rank(backward=6, buckets=MANY)] * 2), "small-buckets", ""),
    "communication": (run([rank(waiting=3.0, buckets=((4_000_000, 3.4),))] * 2), "communication-bound", "1 bucket"),
    "slow network": (run([{**rank(waiting=400.0, buckets=((4_000_000, 3.4),)), "buckets": [
        {"parameters": "fc.weight", "bytes": 4_000_000, "ready_ms": 3.4, "launched_ms": 3.4, "completed_ms": 403.4}]}] * 2),
        "slow-network", "on all ranks alike"),
    "quota of processor time": (run([rank(starved=3.0)] * 2, throttled=0.6), "throttled", "60 %"),
    "another program on all cores": (run([rank(starved=2.9, machine=18.0), rank(starved=3.1)]), "busy-processor", "stood in line"),
    "more ranks than cores": (run([rank(starved=3.0, waiting=2.0)] * 4), "oversubscribed", "4 ranks"),
    "swapping": (run([{**rank(), "page_faults": 40}] * 2), "swapping", "40 pages"),
    "memory nearly full": (run([{**rank(), "resident_bytes": 4 << 30}] * 2), "memory", ""),
    "slow disk": (run(save_seconds=30.0), "slow-disk", "30.0 s"),
    "tiny batch": (run([rank(forward=0.1, backward=0.2, optimizer=0.4, starved=0, waiting=0.05)] * 2), "small-batch", "optimizer"),
    "some steps stall": (run(step_histogram=STALLS), "uneven-steps", "on average"),
    "cores idle": (run(cores=16), "idle-cores", "2 of 16"),
    "learning rate too high, rising": (run(lines=epochs((0.9, 0.5, 0.8), (0.4, 0.4, 0.9), (1.9, 2.0, 0.3))), "diverging", "rose from 0.400"),
    "learning rate too high, worse than guessing": (run(lines=epochs((4.1, 2.9, 0.1))), "diverging", "worse than guessing"),
    "nothing has changed": (run(lines=epochs((2.62, 2.61, 0.1)), loss_curve=[[0.1, 2.62]]), "not-learning", ""),
    "labels shuffled": (run(lines=epochs((2.31, 2.31, 0.1), (2.30, 2.30, 0.11))), "not-learning", "guessing"),
    "learning rate too low": (run(lines=epochs((2.302, 2.302, 0.12)), recipe={"lr": 1e-9}), "not-learning", ""),
    "overfitting, test loss rises": (run(lines=epochs((0.9, 0.8, 0.7), (0.4, 0.6, 0.8), (0.1, 0.9, 0.79))), "overfitting", "epoch 2"),
    "overfitting, losses apart": (run(lines=epochs((1.0, 1.1, 0.6), (0.1, 1.05, 0.65))), "overfitting", "1.050"),
    "data parallel": (run([{**rank(waiting=0, buckets=(), optimizer=1.5), "processor_ms": 8.0, "device_bytes": [92 << 20, 41 << 20]}],
                          division={"parallel": "dp"}, threads=2), "data-parallel", "2.2×"),
    "healthy, data parallel": (run([{**rank(waiting=0, buckets=()), "processor_ms": 11.0, "device_bytes": [50 << 20, 41 << 20]}],
                                   division={"parallel": "dp"}, threads=2), "healthy", ""),
    "killed, slow loader": (run([rank(data=4.0), rank(data=4.2)], ended=False), "input-bound", ""),
    "killed, healthy until then": (run(ended=False), "killed", "stopped without an error after step 376 (4 of 4 epochs)"),
    "failed": (run(lines=[*LEARNS, {"failed": "rank 1 was killed by signal 9"}], ended=False), "failed", "rank 1 was killed"),
    "failed, quota of processor time": (run([rank(starved=3.0)] * 2, lines=[*LEARNS, {"failed": "a rank died"}], throttled=0.6, ended=False),
                                        "throttled", "60 %"),
    "failed, diverged": (run(lines=[{"failed": "train: the loss is nan by step 50 (epoch 1): the run diverged"}], ended=False),
                         "diverging", "by step 50"),
    "resumed after a failure": (run(lines=[LEARNS[0], {"failed": "a rank died"}, *LEARNS[1:]]), "healthy", ""),
    "steps only, slow loader": ({k: v for k, v in run(lines=[{"step": 20, "loss": 2.0, "waiting_for_data": 0.4}]).items() if k != "summary.json"},
                                "input-bound", "40 %"),
    "two steps, in which batch norm has no averages yet": (
        run(lines=[{**line, "step": 2 * line["epoch"]} for line in epochs((0.9, 0.8, 0.7), (0.4, 0.6, 0.8), (0.1, 4.9, 0.1))], measured_steps=2),
        "too-short", "2 steps were"),
    "one step": (run(measured_steps=1), "too-short", "1 step was measured"),
    "slow compute of one rank, the others without a core while they wait": (
        run([rank(waiting=3.2, starved=8.0), rank(backward=25.05)]), "straggler",
        "rank 1 computes 27.2 ms in a step, the others 5.65 ms"),
    "three steps": (run(measured_steps=3), "too-short", "3 steps"),
    "older version": ({k: v for k, v in run().items() if k != "summary.json"}, "unmeasured", "376 steps"),
    "older version, slow loader": ({k: v for k, v in run(lines=[{**LEARNS[0], "waiting_for_data": 0.4}]).items() if k != "summary.json"},
                                   "input-bound", "40 %"),
}

# name: (words for `train`, environment, verdict, words of its reason): real runs of some seconds.
SHORT = ["--epochs", "1", "--max-steps", "25"]
REAL = {
    "slow loader": (SHORT, {"RINGGRAD_SLOW": "data:40"}, "input-bound", ""),
    "slow loader of one rank": (SHORT, {"RINGGRAD_SLOW": "1:data:40"}, "straggler", "rank 1 waits for its data"),
    "slow forward of one rank": (SHORT, {"RINGGRAD_SLOW": "0:forward:40"}, "straggler", "rank 0 computes"),
    "slow backward of one rank": (SHORT, {"RINGGRAD_SLOW": "1:backward:40"}, "straggler", "rank 1 computes"),
    "slow optimizer": (SHORT, {"RINGGRAD_SLOW": "optimizer:40"}, "small-batch", "optimizer"),
    "learning rate too high": (["--epochs", "1", "--lr", "3", "--momentum", "0", "--schedule", "constant"], {}, "diverging|not-learning", ""),
    "learning rate too low": (["--epochs", "1", "--lr", "1e-9"], {}, "not-learning", "guessing"),
}
