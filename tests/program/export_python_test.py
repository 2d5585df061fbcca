#!/usr/bin/env python3
"""The Python that `ringgrad export --python` prints, run by PyTorch: it finds what we find in the same images.

Exit status 77 (skipped) where this Python has no torch, torchvision or safetensors.
"""

import json, pathlib, sys, unittest

try:
    import safetensors, torch, torchvision
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

from program_case import DigitsCase


def read_idx(path):
    data = path.read_bytes()
    sizes = [int.from_bytes(data[4 + 4 * d : 8 + 4 * d], "big") for d in range(data[3])]
    return torch.frombuffer(bytearray(data[4 + 4 * len(sizes) :]), dtype=torch.uint8).view(sizes)


class ExportTest(DigitsCase):
    def exported(self, *words):
        names = {}
        exec(json.loads(self.run_program("export", "--python", *words, "--json").stdout)["python"], names)
        return names

    def test_the_same_accuracy_to_the_last_image(self):
        self.run_program("train", "--model", "cnn", "--data", "digits", "--epochs", "1", "--parallel", "none", "--out", "run")
        ours = json.loads(self.run_program("eval", "run", "--json").stdout)
        folder = pathlib.Path(self.shared) / "digits"
        images, labels = (read_idx(folder / f"t10k-{name}-ubyte") for name in ("images-idx3", "labels-idx1"))
        for path in ("run", "run/checkpoint.safetensors"):
            names = self.exported(str(self.dir / path))
            with torch.no_grad():
                answers = names["predict"](images.unsqueeze(1)).argmax(1)
            self.assertEqual((answers == labels).sum().item(), ours["correct"])
        self.assertGreater(ours["accuracy"], 0.5)
        with safetensors.safe_open(self.dir / "run/model.safetensors", "pt") as file:
            about = file.metadata()
        self.assertEqual(json.loads(about["classes"]), names["classes"])
        self.assertEqual(json.loads(about["input_size"]), [1, 28, 28])
        for key in ("mean", "std"):
            self.assertEqual(json.loads(about[key]), [round(number, 4) for number in names[key].flatten().tolist()])

    def test_every_kind_of_network_sees_the_same(self):
        for model, data in (("lenet", "digits"), ("resnet20", "shapes"), ("resnet20b", "shapes"), ("resnet18", "shapes"),
                            ("quick", "digits"), ("airbench", "shapes")):
            average = ["--ema", "0.5"] if model == "lenet" else []
            self.run_program("train", "--model", model, "--data", data, "--batch", "4", "--max-steps", "2", "--parallel", "none",
                             "--out", model, *average)
            checkpoint = str(self.dir / model / "checkpoint.safetensors")
            ours = json.loads(self.run_program("predict", checkpoint, "7", "--json").stdout)["probabilities"]
            if data == "digits":
                image = read_idx(pathlib.Path(self.shared) / data / "t10k-images-idx3-ubyte")[7:8].unsqueeze(1)
            else:
                record = (pathlib.Path(self.shared) / data / "test_batch.bin").read_bytes()[7 * 3073 + 1 : 8 * 3073]
                image = torch.frombuffer(bytearray(record), dtype=torch.uint8).view(1, 3, 32, 32)
            names = self.exported(checkpoint)
            with torch.no_grad():
                theirs = torch.softmax(names["predict"](image), 1)[0].tolist()
            for name, probability in zip(names["classes"], theirs):
                self.assertAlmostEqual(ours[name], probability, delta=1e-4, msg=model)

    def test_it_must_be_said_what_for(self):
        self.assertIn("--python", self.run_program("export", "run", code=2).stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
