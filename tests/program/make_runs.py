#!/usr/bin/env python3
"""Makes small runs of every kind: make_runs.py PATH_TO_RINGGRAD writes text files to tests/runs/.

They stay there while the program goes on: program_runs_test.py opens them with every command. Their weights are made anew
by each test, as they are large. Two are as older versions wrote them: `first` as commit 882cf6d (no division, and a recipe
without dtype and what came after it), `division` as commit 1b12a5e."""

import json, os, pathlib, shutil, subprocess, tempfile

from program_case import PROGRAM, rewrite_safetensors, write_tiny

KEPT = pathlib.Path(__file__).parent / "runs"
TEXTS = ("config.json", "metrics.jsonl", "summary.json", "measurements.json", "results.json")
TRAIN = ("train", "--parallel", "none", "--batch", "64")
COMMANDS = {
    "finished": (*TRAIN, "--epochs", "2"),
    "unfinished": (*TRAIN, "--epochs", "2", "--max-steps", "5", "--log-every", "2"),
    "speedrun": ("train", "--preset", "speedrun", "--data", "digits"),
    "gan": ("gan", "--epochs", "1"),
    "cart": ("reinforce", "--episodes", "3"),
    "bench": ("bench", "ddp", "--model", "cnn", "--batch", "8", "--rounds", "1", "--seconds", "0.01", "--force"),
}
YOUNGER = ("accumulate", "image_size", "skip_broken", "freeze")  # than commit 1b12a5e
YOUNGEST_OF_FIRST = (*YOUNGER, "dtype", "amp", "conv", "provider")
OLDER = {"first": YOUNGEST_OF_FIRST, "division": YOUNGER}


def make(folder, data):
    """Makes one run of each command. Older runs are an unfinished run without newer settings."""
    for name, words in COMMANDS.items():
        done = subprocess.run([PROGRAM, *words, "--out", folder / name], capture_output=True, text=True,
                              env={**os.environ, "RINGGRAD_DATA_DIR": str(data)})
        assert done.returncode == 0, f"{name}\n{done.stdout}\n{done.stderr}"
    for name in OLDER:
        make_older(folder / "unfinished", folder / name, name)


def make_older(run, older, name):
    shutil.copytree(run, older)
    for file in ("summary.json", "report.html"):
        (older / file).unlink()
    config = json.loads((older / "config.json").read_text())
    division = config.pop("division")
    if name == "division":
        config["division"] = {key: division[key] for key in ("parallel", "ranks", "sync_bn", "device", "transport")}
    config["recipe"] = {key: value for key, value in config["recipe"].items() if key not in OLDER[name]}
    (older / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    lines = [json.loads(line) for line in (older / "metrics.jsonl").read_text().splitlines()]
    keys = ("epoch", "step", "loss", "test_accuracy", "test_loss", "images_per_second", "seconds", "waiting_for_data")
    lines = [{key: line[key] for key in keys if key in line} for line in lines if "epoch" in line]
    (older / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    give_older_checkpoint(run, older, name)


def give_older_checkpoint(run, older, name):
    """Saves the weights of `run` with the progress as the version of `older` wrote it."""
    for file in ("model.safetensors", "checkpoint.safetensors"):
        shutil.copy(run / file, older)
    before = progress_of(older / "checkpoint.safetensors")
    after = {key: before[key] for key in ("step", "images", "sampler", "recipe")}
    after["recipe"] = {key: value for key, value in before["recipe"].items() if key not in OLDER[name]}
    if name == "first":
        after["loss_sum"] = before["loss_sums"][0]
    else:
        after |= {key: before[key] for key in ("loss_sums", "used_images", "ready_order")}
    rewrite_safetensors(older / "checkpoint.safetensors", progress_to=after)


def progress_of(file):
    data = file.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return json.loads(header["__metadata__"]["progress"])


def keep(folder):
    shutil.rmtree(KEPT, ignore_errors=True)
    for run in sorted(folder.iterdir()):
        (KEPT / run.name).mkdir(parents=True)
        for name in TEXTS:
            if (run / name).exists():
                text = (run / name).read_text().replace(str(folder.parent), "/home/somebody")
                text = text.replace(str(PROGRAM), "ringgrad")
                (KEPT / run.name / name).write_text(text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        write_tiny(place / "data/digits", train=256, test=32)
        make(place / "runs", place / "data")
        keep(place / "runs")
