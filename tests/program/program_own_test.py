#!/usr/bin/env python3
"""Training on pictures of one's own: program_own_test.py PATH_TO_RINGGRAD [test names].

Folders and lists of pictures, what is broken among them, the cache, and networks that have learnt elsewhere.
"""

import array, csv, json, os, pathlib, re, shutil, struct, subprocess, sys, unittest, zlib

from program_case import PROGRAM, ProgramCase, read_safetensors

READS = json.loads(subprocess.run([PROGRAM, "doctor", "--json"], capture_output=True, text=True).stdout)["pictures"]
QUICK = ["--model", "resnet20", "--image-size", "32", "--batch", "4", "--epochs", "1"]


def pixels(shade, width=6, height=5):
    """A colour that says the class, and a row that says the picture."""
    return bytes(shade) * (width * (height - 1)) + bytes(range(shade[0] % 7, shade[0] % 7 + 3 * width))


def write_ppm(path, shade, width=6, height=5):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"P6\n%d %d\n255\n" % (width, height) + pixels(shade, width, height))


def write_png(path, shade, width=6, height=5):
    """Half transparent, which PNG files of today often are."""
    row = b"\0" + (bytes(shade) + b"\x80") * width
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0))
                     + chunk(b"IDAT", zlib.compress(row * height)) + chunk(b"IEND", b""))


def write_safetensors(path, tensors):
    """tensors: name -> (shape, whether they are whole numbers)"""
    header, body = {}, bytearray()
    noise = array.array("f", [((i * 7919) % 1013 / 506.5 - 1) / 20 for i in range(4093)])
    for name, (shape, whole) in tensors.items():
        count = 1
        for size in shape:
            count *= size
        if whole:
            values = struct.pack("<q", 0) * count
        elif len(shape) == 1:
            values = array.array("f", [0.0 if name.endswith(("bias", "mean")) else 1.0] * count).tobytes()
        else:
            values = (noise * (count // len(noise) + 1))[:count].tobytes()
        header[name] = {"dtype": "I64" if whole else "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(values)]}
        body += values
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def torchvision_resnet18(classes):
    """The state of torchvision.models.resnet18(num_classes=classes): names and shapes."""
    state = {}

    def conv(name, inputs, outputs, side):
        state[name + ".weight"] = ([outputs, inputs, side, side], False)

    def norm(name, channels):
        for part in ("weight", "bias", "running_mean", "running_var"):
            state[f"{name}.{part}"] = ([channels], False)
        state[name + ".num_batches_tracked"] = ([], True)

    conv("conv1", 3, 64, 7), norm("bn1", 64)
    inputs = 64
    for layer, channels in enumerate((64, 128, 256, 512), 1):
        for block in range(2):
            name = f"layer{layer}.{block}"
            conv(name + ".conv1", inputs, channels, 3), norm(name + ".bn1", channels)
            conv(name + ".conv2", channels, channels, 3), norm(name + ".bn2", channels)
            if inputs != channels:
                conv(name + ".downsample.0", inputs, channels, 1), norm(name + ".downsample.1", channels)
            inputs = channels
    state["fc.weight"], state["fc.bias"] = ([classes, 512], False), ([classes], False)
    return state


class OwnPictures(ProgramCase):
    def setUp(self):
        super().setUp()
        for i in range(8):
            write_ppm(self.dir / f"pets/cat/{i}.ppm", (200 + i, 20, 30))
            write_ppm(self.dir / f"pets/dog/{i}.ppm", (10, 20, 200 + i), width=9)

    def train(self, *words, ranks="1"):
        return json.loads(self.run_program("train", "--data", "pets", *QUICK, "--ranks", ranks, *words, "--json").stdout)

    def test_a_folder_is_trained_on_and_its_classes_go_along(self):
        trained = self.train("--out", "run", ranks="2")
        config = json.loads((self.dir / "run/config.json").read_text())
        self.assertEqual(config["images"]["classes"], ["cat", "dog"])
        self.assertEqual(config["recipe"]["data"], str(self.dir / "pets"))
        weights, about = read_safetensors(self.dir / "run/model.safetensors")
        self.assertEqual((about["classes"], about["input_size"]), ('["cat","dog"]', "[3, 32, 32]"))
        self.assertIn("digest", config["images"])

        elsewhere = self.dir / "elsewhere"
        elsewhere.mkdir()
        for model in ("run", "run/model.safetensors", "run/checkpoint.safetensors"):
            found = json.loads(self.run_program("eval", "../" + model, "--json", "--data-dir", str(self.dir / "data"),
                                                cwd=elsewhere).stdout)
            self.assertEqual((found["accuracy"], found["total"]), (trained["test_accuracy"], 2))
        self.assertEqual(set(found["recall"]), {"cat", "dog"})
        seen = json.loads(self.run_program("predict", "run", "pets/cat/0.ppm", "--json").stdout)
        self.assertEqual(set(seen["probabilities"]), {"cat", "dog"})
        self.assertIn(json.loads(self.run_program("predict", "run", "1", "--json").stdout)["label"], ("cat", "dog"))
        self.assertIn('classes = ["cat","dog"]', self.run_program("export", "--python", "run").stdout)
        self.assertIn("data:image/png", (self.dir / "run/report.html").read_text())
        os.remove(self.dir / "run/summary.json")
        self.run_program("report", "run")
        self.assertIn("data:image/png", (self.dir / "run/report.html").read_text())
        self.assertIn("recall", self.run_program("eval", "run", "--worst", "2", "--out", "worst.png").stdout)
        self.assertTrue((self.dir / "worst.png").read_bytes().startswith(b"\x89PNG"))

    def test_a_list_and_divided_folders_are_data_too(self):
        lines = [f"pets/{kind}/{i}.ppm,{kind}" for kind in ("cat", "dog") for i in range(8)]
        (self.dir / "list.csv").write_text("\ufeffpath,label\r\n" + "\r\n".join(lines[:-1]) + f'\r\n"{lines[-1][:-4]}", "dog"\r\n')
        listed = json.loads(self.run_program("data", "check", "list.csv", "--json").stdout)
        self.assertEqual((listed["train"], listed["test"], listed["sizes"]["largest"]), (14, 2, "9×5"))
        done = self.run_program("train", "--data", "list.csv", *QUICK, "--out", "csv", "--max-steps", "1")
        self.assertIn("list 14 train / 2 test", done.stderr)
        (self.dir / "one.csv").write_text("pets/cat/0.ppm,cat\npets/dog/0.ppm,dog\npets/dog/1.ppm,dog\n")
        self.assertIn("one.csv: class 'cat' has one picture", self.run_program("data", "check", "one.csv", code=4).stderr)

        for part in ("train", "val"):
            for kind in ("cat", "dog"):
                (self.dir / "divided" / part).mkdir(parents=True, exist_ok=True)
                os.symlink(self.dir / "pets" / kind, self.dir / "divided" / part / kind)
        for part, extra in (("train", "cow"), ("val", "bee")):
            write_ppm(self.dir / "divided" / part / extra / "0.ppm", (1, 2, 3))
        self.assertIn("no class 'bee'", self.run_program("data", "check", "divided", code=4).stderr)

    def cached(self, cached):
        """Only training writes there."""
        if cached:
            self.train("--out", "again", "--max-steps", "1")
            shutil.rmtree(self.dir / "again")
        else:
            for file in (self.dir / "data/cache").iterdir():
                file.unlink()
        self.assertEqual(bool(list((self.dir / "data/cache").iterdir())), cached)

    def test_a_picture_is_the_same_from_the_files_and_from_the_cache(self):
        self.train("--out", "run")
        page, seen = [], []
        for cached in (False, True):
            self.cached(cached)
            seen.append([self.run_program("predict", "run", str(i), "--json").stdout for i in range(2)])
        for i in range(2):
            self.assertEqual(json.loads(seen[0][i]), json.loads(seen[1][i]))
        for cached in (False, True):
            self.cached(cached)
            self.run_program("report", "run", "--out", "page.html")
            page.append(re.findall(r'src="data:image/png[^"]*"', (self.dir / "page.html").read_text()))
        self.assertEqual(len(page[0]), 2)
        self.assertEqual(page[0], page[1])

    def test_many_pictures_are_predicted_at_once(self):
        self.train("--out", "run")
        alone = {name: json.loads(self.run_program("predict", "run", name, "--json").stdout)["probabilities"]
                 for name in ("pets/cat/0.ppm", "pets/dog/1.ppm")}
        (self.dir / "pets/dog/x.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
        (self.dir / "a,b.ppm").write_bytes((self.dir / "pets/cat/0.ppm").read_bytes())
        many = self.run_program("predict", "run", "pets", "--json")
        document = json.loads(many.stdout)
        self.assertIn(".heic", many.stderr)
        found = {row["file"]: row for row in document["predictions"]}
        self.assertEqual(list(found), sorted(found))
        self.assertEqual(set(found), {str(path.relative_to(self.dir)) for path in (self.dir / "pets").rglob("*.ppm")})
        for name, probabilities in alone.items():
            self.assertEqual(found[name]["probabilities"], probabilities)
            self.assertEqual(found[name]["prediction"], max(probabilities, key=probabilities.get))
        rows = list(csv.DictReader(self.run_program("predict", "run", "a,b.ppm", "pets/dog/1.ppm", "--format", "csv").stdout.splitlines()))
        self.assertEqual([row["file"] for row in rows], ["a,b.ppm", "pets/dog/1.ppm"])
        self.assertAlmostEqual(float(rows[1]["probability"]), max(alone["pets/dog/1.ppm"].values()), places=6)
        done = self.run_program("predict", "run", "pets/dog/x.heic", "pets/dog/1.ppm", "nothing.ppm", code=4)
        self.assertIn("x.heic is a HEIC picture, which is not read", done.stdout)
        self.assertIn("2 pictures of 3 cannot be read", done.stderr)
        self.assertIn("pets/dog/1.ppm", done.stdout)
        with open(self.dir / "pets/cat/0.ppm", "rb") as picture:
            piped = self.run_program("predict", "run", "-", "--json", stdin=picture)
        self.assertEqual(json.loads(piped.stdout)["probabilities"], alone["pets/cat/0.ppm"])
        (self.dir / "empty").mkdir()
        self.run_program("predict", "run", "empty", code=4)

    def test_the_pictures_that_it_gets_wrong_have_names(self):
        self.train("--out", "run")
        worst = json.loads(self.run_program("eval", "run", "--worst", "2", "--json").stdout)["worst"]
        for image in worst:
            self.assertTrue((self.dir / "pets" / image["file"]).is_file())
            self.assertEqual(image["file"].split("/")[0], image["label"])
        self.assertIn(worst[0]["file"], self.run_program("eval", "run", "--worst", "2").stdout)
        for words in ([], ["report", "run"]):
            if words:
                self.run_program(*words)
            page = (self.dir / "run/report.html").read_text()
            for image in worst:
                self.assertIn(image["file"], page)
        (self.dir / "pets/cat/00.ppm").write_bytes(b"P6 broken")  # numbers of images are those of whole ones
        self.run_program("train", "--data", "pets", *QUICK, "--skip-broken", "--out", "skips", "--seed", "3")
        for image in json.loads(self.run_program("eval", "skips", "--worst", "9", "--json").stdout)["worst"]:
            self.assertEqual(image["file"].split("/")[0], image["label"])

    def test_what_is_left_out_is_said_and_the_classes_are_named(self):
        left_out = {"pets/cat/a.heic": ".heic", "pets/cat/b.HEIC": ".heic", "pets/dog/c.avif": ".avif", "pets/dog/deep/d.svg": ".svg",
                    "pets/cat/e.jxl": ".jxl", "pets/cat/notes": "no extension", "pets/cat/.thumbnails/x.ppm": "hidden",
                    "pets/cat/._0.ppm": "hidden", "pets/stray.ppm": "beside the classes", "pets/x.heic": "beside the classes",
                    "pets/.git/z.ppm": None, "pets/cat/.DS_Store": None}
        for name in left_out:
            write_ppm(self.dir / name, (200, 20, 30))
        os.symlink("../dog", self.dir / "pets/cat/others")
        checked = self.run_program("data", "check", "pets", "--json")
        told = {each["kind"]: (each["count"], each["first"]) for each in json.loads(checked.stdout)["left_out"]}
        kinds = [kind for kind in left_out.values() if kind] + ["link to a folder"]
        self.assertEqual({kind: count for kind, (count, _) in told.items()}, {kind: kinds.count(kind) for kind in kinds})
        self.assertTrue(told[".heic"][1].endswith("pets/cat/a.heic"), told)
        self.assertEqual(json.loads(checked.stdout)["train"] + json.loads(checked.stdout)["test"], 16)
        shown = self.run_program("data", "check", "pets").stdout
        self.assertRegex(shown, r"without \.heic +2 the first is .*/pets/cat/a\.heic")
        self.assertIn("class   cat", shown)
        done = self.run_program("train", "--data", "pets", *QUICK, "--max-steps", "1", "--ranks", "1")
        self.assertIn("2 classes: cat, dog", done.stderr)
        self.assertRegex(done.stderr, r"left out: .*2 × \.heic \(the first is .*/pets/cat/a\.heic\)")
        (self.dir / "pets/cow").mkdir()
        (self.dir / "pets/cow/only.heic").write_text("")
        self.assertIn("cow has no picture", self.run_program("data", "check", "pets", code=4).stderr)
        self.assertIn("1 × .heic (", self.run_program("train", "--data", "pets", *QUICK, code=4).stderr)

    def test_folders_for_training_and_the_test_have_several_names(self):
        for train, test in (("train", "valid"), ("Training", "Testing"), ("TRAIN", "Validation"), ("train", "test"), ("training", "val")):
            name = f"{train}-{test}"
            for part in (train, test):
                for kind in ("cat", "dog"):
                    for i in range(2 if part == test else 3):
                        write_ppm(self.dir / name / part / kind / f"{i}.ppm", (i, 2, 3))
            told = json.loads(self.run_program("data", "check", name, "--json").stdout)
            self.assertEqual(([each["name"] for each in told["classes"]], told["train"], told["test"]), (["cat", "dog"], 6, 4))
            self.assertIn(f"trained on {train}/, tested on {test}/", told["division"])
        write_ppm(self.dir / "train-valid/test/cat/0.ppm", (1, 2, 3))
        told = json.loads(self.run_program("data", "check", "train-valid", "--json").stdout)
        self.assertEqual([(each["kind"], each["count"]) for each in told["left_out"]], [("folder beside them", 1)])
        shutil.rmtree(self.dir / "training-val/val")
        told = json.loads(self.run_program("data", "check", "training-val", "--json").stdout)
        self.assertEqual([each["name"] for each in told["classes"]], ["cat", "dog"])
        for i in range(2):  # a train is a vehicle, too
            write_ppm(self.dir / f"vehicles/train/{i}.ppm", (1, 2, i))
            write_ppm(self.dir / f"vehicles/bus/{i}.ppm", (1, 2, i))
        told = json.loads(self.run_program("data", "check", "vehicles", "--json").stdout)
        self.assertEqual([each["name"] for each in told["classes"]], ["bus", "train"])

    def test_runs_and_caches_among_the_classes_are_none(self):
        pets = self.dir / "pets"
        (pets / "runs").mkdir()  # an earlier version has left it so
        words = ["train", "--data", ".", "--data-dir", ".", *QUICK, "--max-steps", "1"]
        for ranks in ("1", "2"):
            self.run_program(*words, "--ranks", ranks, cwd=pets)
        self.run_program(*words, "--ranks", "1", "--out", "mine", cwd=pets)
        self.run_program("eval", "latest", "--worst", "1", cwd=pets)
        self.run_program(*words, "--ranks", "1", cwd=pets)
        self.run_program("train", "--resume", "mine", cwd=pets)
        for place, name in ((pets, "."), (self.dir, "pets")):
            told = json.loads(self.run_program("data", "check", name, "--json", cwd=place).stdout)
            self.assertEqual([each["name"] for each in told["classes"]], ["cat", "dog"])
        for i in range(2):
            write_ppm(pets / f"runs-of-trains/{i}.ppm", (1, 2, i))
        self.assertEqual(len(json.loads(self.run_program("data", "check", "pets", "--json").stdout)["classes"]), 3)

    def test_check_divides_as_train_does(self):
        kinds = {kind: [self.dir / f"pets/{kind}/{i}.ppm" for i in range(8)] for kind in ("cat", "dog")}
        (self.dir / "list.csv").write_text("".join(f"{file},{kind}\n" for kind in kinds for file in kinds[kind]))
        (self.dir / "pets/dog/5.ppm").write_text("a text")  # it is for the test
        found = set()
        for path in ("list.csv", "./list.csv", str(self.dir / "list.csv")):
            told = json.loads(self.run_program("data", "check", path, "--json", code=4).stdout)
            found.add(json.dumps(told["classes"]))
        self.assertEqual(len(found), 1, found)

    def test_a_picture_that_could_not_be_read_is_tried_again(self):
        file = self.dir / "pets/cat/7.ppm"
        whole, times = file.read_bytes(), (1e9, 1e9)
        file.write_bytes(b"??" + whole[2:])
        os.utime(file, times)
        self.run_program("train", "--data", "pets", *QUICK, code=4)
        file.write_bytes(whole)  # what was wrong passes, and leaves the same name, size and time
        os.utime(file, times)
        self.train("--max-steps", "1")

    def test_what_is_broken_is_named_and_may_be_left_out(self):
        (self.dir / "pets/cat/7.ppm").write_bytes(b"P6\n9 9\n255\nshort")
        (self.dir / "pets/dog/0.ppm").write_text("a text")
        checked = json.loads(self.run_program("data", "check", "pets", "--json", code=4).stdout)
        self.assertEqual([pathlib.Path(one["file"]).name for one in checked["broken"]], ["7.ppm", "0.ppm"])
        done = self.run_program("train", "--data", "pets", *QUICK, "--ranks", "2", code=4)
        self.assertEqual(done.stderr.count("2 of 16 pictures cannot be read"), 1)
        self.assertIn("cat/7.ppm: 5 bytes of pixels", done.stderr)
        self.assertIn("--skip-broken", done.stderr)
        os.symlink("pets", self.dir / "my pets")
        done = self.run_program("train", "--data", "my pets", *QUICK, code=4)
        self.assertIn(f"data check '{self.dir}/my pets'\n", done.stderr)
        self.assertFalse(list(self.dir.glob("runs/0*")))
        self.train("--skip-broken", "--out", "run", "--max-steps", "1")
        self.run_program("eval", "run")
        self.run_program("eval", "run/model.safetensors", code=4)
        self.run_program("eval", "run/model.safetensors", "--skip-broken")

    def test_the_cache_follows_the_files(self):
        self.train("--max-steps", "1", "--out", "a")
        cache, = (self.dir / "data/cache").glob("pets-*.safetensors")
        first = cache.stat()
        self.train("--max-steps", "1", "--out", "b", "--seed", "2")
        self.assertEqual(cache.stat().st_mtime_ns, first.st_mtime_ns)
        self.assertEqual(list((self.dir / "data/cache").iterdir()), [cache])
        whole = cache.read_bytes()
        cache.write_bytes(whole[: len(whole) // 2])  # damaged: made anew
        self.train("--max-steps", "1", "--out", "c")
        self.assertEqual(cache.read_bytes(), whole)
        for run in "bc":
            self.assertEqual(json.loads((self.dir / run / "config.json").read_text())["images"],
                             json.loads((self.dir / "a/config.json").read_text())["images"])
        write_ppm(self.dir / "pets/cat/0.ppm", (99, 20, 30))
        self.assertIn("are not those that the run began with", self.run_program("train", "--resume", "a", code=4).stderr)
        self.assertTrue(cache.read_bytes() == whole)  # what config.json names is only read
        self.train("--max-steps", "1", "--out", "d")
        self.assertFalse(cache.read_bytes() == whole)

    def test_a_run_goes_on_bit_for_bit(self):
        self.train("--out", "whole")
        self.train("--out", "part", "--max-steps", "2")
        self.run_program("train", "--resume", "part")
        self.assertEqual(read_safetensors(self.dir / "whole/model.safetensors"), read_safetensors(self.dir / "part/model.safetensors"))

    def test_a_run_does_not_go_on_with_other_names_of_classes(self):
        for part in ("train", "val"):
            shutil.copytree(self.dir / "pets", self.dir / "both" / part)
        self.run_program("train", "--data", "both", *QUICK, "--parallel", "none", "--max-steps", "1", "--out", "run")
        for part in ("train", "val"):
            (self.dir / "both" / part / "cat").rename(self.dir / "both" / part / "cow")
        self.assertIn("renamed or changed", self.run_program("train", "--resume", "run", code=4).stderr)

    def test_files_whose_names_are_not_utf_8(self):
        for path in list((self.dir / "pets").rglob("*.ppm")):
            os.rename(path, os.fsencode(path)[:-4] + b"\xe4.ppm")
        run = os.fsdecode(b"r\xe4n")
        self.train("--out", run, "--trace-steps", "1:2")
        worst = json.loads((self.dir / run / "summary.json").read_text())["worst"]
        self.assertEqual({image["file"][-5:] for image in worst}, {"\ufffd.ppm"})
        shutil.copy(self.dir / run / "model.safetensors", self.dir / (run + ".safetensors"))
        self.assertIn("is not UTF-8", self.run_program("export", run, "--python", code=4).stderr)
        words = ["train", "--data", "pets", *QUICK, "--init", run + ".safetensors", "--out", "other"]
        for ranks in (["--parallel", "none"], ["--ranks", "2"]):
            self.assertIn("r\\xe4n.safetensors' is not UTF-8", self.run_program(*words, *ranks, code=4).stderr)
            self.assertFalse((self.dir / "other").exists())

    def test_a_network_of_one_class_has_no_second_answer(self):
        path = self.dir / "one.safetensors"
        write_safetensors(path, torchvision_resnet18(1))
        data = path.read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        about = {"model": "resnet18", "data": "pets", "input_size": "[3, 64, 64]", "mean": "[0, 0, 0]", "std": "[1, 1, 1]", "classes": '["cat"]'}
        text = json.dumps({"__metadata__": about, **json.loads(data[8 : 8 + length])}).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])
        rows = list(csv.DictReader(self.run_program("predict", "one.safetensors", "pets/cat", "--format", "csv").stdout.splitlines()))
        self.assertEqual({tuple(row.values())[1:] for row in rows}, {("cat", "1.000000", "", "", "")})
        self.assertEqual(self.run_program("predict", "one.safetensors", "pets/cat").stdout.count("100.00 %"), len(rows))

    def test_what_cannot_be_is_refused(self):
        for said, code, words in (("no data set", 2, ["data", "check", "pet"]),
                                  ("cifar100, or a folder of pictures that exists", 2, ["train", "--data", "nowhere"]),
                                  ("No such file", 4, ["train", "--data", "./nowhere"]),
                                  ("No such file", 4, ["train", "--data", "nowhere.csv"]),
                                  ("expected 32 to 224", 2, ["train", "--data", "pets", "--image-size", "16"]),
                                  ("pictures of one's own", 2, ["train", "--data", "digits", "--image-size", "64"]),
                                  ("there is no --init", 2, ["train", "--data", "pets", "--freeze", "backbone"])):
            self.assertIn(said, self.run_program(*words, code=code).stderr)
        (self.dir / "list.csv").write_text("a.png,cat\nb.png\n")
        self.assertIn("line 2 lacks a path or a label", self.run_program("data", "check", "list.csv", code=4).stderr)
        write_ppm(self.dir / "one/cat/0.ppm", (1, 2, 3))
        self.assertIn("has one picture", self.run_program("data", "check", "one", code=4).stderr)
        write_ppm(self.dir / "one/cat/1.ppm", (1, 2, 3))
        latin = os.fsencode(self.dir) + b"/latin/caf\xe9"
        os.makedirs(latin), os.makedirs(self.dir / "latin/tea")
        for i in range(2):
            write_ppm(self.dir / f"latin/tea/{i}.ppm", (1, 2, i))
            (pathlib.Path(os.fsdecode(latin)) / f"{i}.ppm").write_bytes((self.dir / f"latin/tea/{i}.ppm").read_bytes())
        self.assertIn("is not UTF-8", self.run_program("train", "--data", "latin", code=4).stderr)
        self.assertIn("has one class", self.run_program("data", "check", "one", code=4).stderr)

    @unittest.skipUnless(READS["PNG"], "built without libpng")
    def test_pictures_are_png(self):
        for i in range(4):
            write_png(self.dir / f"png/red/{i}.png", (250, 10, i))
            write_png(self.dir / f"png/blue/{i}.PNG", (10, 10, 250 - i))
        self.run_program("train", "--data", "png", *QUICK, "--out", "run", "--max-steps", "1")
        self.assertIn("red", self.run_program("predict", "run", "png/red/0.png").stdout)
        if READS["JPEG"]:
            photo = pathlib.Path(__file__).parents[1] / "fuzz/corpus/image/two.jpg"
            self.assertIn("red", self.run_program("predict", "run", photo).stdout)

    # ---- networks that have learnt elsewhere ---------------------------------------------------------------------

    def test_torchvisions_weights_get_a_new_head_and_stay_frozen(self):
        write_safetensors(self.dir / "torchvision.safetensors", torchvision_resnet18(1000))
        words = ["train", "--data", "pets", "--init", "torchvision.safetensors", "--batch", "4", "--epochs", "1"]
        done = self.run_program(*words, "--freeze", "backbone", "--ranks", "2", "--max-steps", "2", "--out", "run")
        self.assertIn("has 1000 classes; its last layer (fc) is replaced by a new one for these 2", done.stderr)
        self.assertIn("11,177,538 parameters, 1,026 of them trained", done.stderr)
        given, _ = read_safetensors(self.dir / "torchvision.safetensors")
        found, about = read_safetensors(self.dir / "run/model.safetensors")
        self.assertEqual(set(given), set(found))
        self.assertEqual([name for name in given if given[name] != found[name]], ["fc.weight", "fc.bias"])
        self.assertEqual(about["mean"], "[0.485, 0.456, 0.406]")  # ImageNet's
        sent = json.loads((self.dir / "run/summary.json").read_text())["ranks"][0]["sent_bytes"]
        self.assertLess(sent, 4 * 1026 + 64)  # nothing of the backbone travels
        self.run_program("eval", "run")

        small = self.run_program(*words, "--image-size", "32", code=4)
        self.assertIn("--image-size 64", small.stderr)

    def test_ones_own_run_goes_on_elsewhere(self):
        self.train("--out", "first", "--max-steps", "2")
        for i in range(4):
            for kind, shade in (("ant", 1), ("bee", 2), ("cow", 3)):
                write_ppm(self.dir / f"farm/{kind}/{i}.ppm", (9 * i, 90 * shade % 255, 7))
        done = self.run_program("train", "--data", "farm", *QUICK, "--init", "first", "--out", "second", "--max-steps", "1")
        self.assertIn("is replaced by a new one for these 3", done.stderr)
        first, second = (json.loads((self.dir / run / "config.json").read_text())["images"] for run in ("first", "second"))
        self.assertEqual(first["mean"], second["mean"])
        self.assertIn("of which this network knows nothing", self.run_program("eval", "first", "--data", "farm", code=4).stderr)


class WhereDataLie(ProgramCase):
    def place(self, *words, **env):
        clean = {key: value for key, value in os.environ.items() if key not in ("RINGGRAD_DATA_DIR", "XDG_DATA_HOME")}
        done = subprocess.run([PROGRAM, "data", "list", "--json", *words], capture_output=True, text=True, cwd=self.dir,
                              env={**clean, **env})
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["data_dir"]

    def test_the_current_directory_does_not_matter(self):
        checkout = next((folder for folder in PROGRAM.parents if (folder / "data/registry.h").exists()), None)
        files = checkout / "data/files" if checkout else None
        own = files if files and files.is_dir() and any(files.iterdir()) else None
        (self.dir / "data/files/digits").mkdir(parents=True)
        self.assertEqual(self.place(HOME="/home/me"), str(own or "/home/me/.local/share/ringgrad"))
        self.assertEqual(self.place(HOME="/home/me", XDG_DATA_HOME="/xdg"), str(own or "/xdg/ringgrad"))
        self.assertEqual(self.place(HOME="/home/me", RINGGRAD_DATA_DIR="there"), "there")
        self.assertEqual(self.place("--data-dir", "here", RINGGRAD_DATA_DIR="there"), "here")

    def test_a_checkouts_data_are_found(self):
        fake = self.dir / "checkout"
        (fake / "build").mkdir(parents=True)
        (fake / "data/files/mnist").mkdir(parents=True)
        (fake / "data/registry.h").write_text("")
        try:
            os.link(PROGRAM, fake / "build/ringgrad")
        except OSError:  # another file system
            self.skipTest("the program cannot be linked to")
        done = subprocess.run([fake / "build/ringgrad", "doctor", "--json"], capture_output=True, text=True, cwd="/",
                              env={**{k: v for k, v in os.environ.items() if k != "RINGGRAD_DATA_DIR"}, "HOME": "/nowhere"})
        self.assertEqual(json.loads(done.stdout)["data_dir"], str((fake / "data/files").resolve()))

    def test_a_terminal_shows_lists_in_80_columns(self):
        for words in (["data", "list"], ["bench", "train", "--batch", "1", "--steps", "1", "--warm-up", "0", "--profile"]):
            shown = self.on_a_terminal(*words).splitlines()
            self.assertLessEqual(max(map(len, shown)), 80, shown)
        write_safetensors(self.dir / "net.safetensors", {"layer4.1.a_rather_long_name_of_a_part.conv2.weight": ([16, 16, 3, 3], False),
                                                         "bn1.num_batches_tracked": ([], True)})
        shown = self.on_a_terminal("inspect", "net.safetensors").splitlines()
        self.assertLessEqual(max(map(len, shown)), 80, shown)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
