#!/usr/bin/env python3
"""Weights from elsewhere: program_weights_test.py PATH_TO_RINGGRAD [test names]. make_pth.py has written the files of
PyTorch; where Python3 has torch, they and networks are also written and computed anew."""

import collections, io, json, os, pathlib, pickle, struct, sys, types, unittest, zipfile

sys.dont_write_bytecode = True

from program_case import PROGRAM, DigitsCase, ProgramCase
from program_own_test import torchvision_resnet18

try:
    import torch
except ImportError:
    torch = None

HERE = pathlib.Path(__file__).resolve().parent
FILES = HERE.parent / "fuzz/corpus/torch"


def values_in(path):
    """name -> [dtype, shape, values] of a safetensors file."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    read = {}
    for name, entry in header.items():
        raw = data[8 + length :][slice(*entry["data_offsets"])]
        if entry["dtype"] == "BF16":
            raw = b"".join(b"\0\0" + raw[i : i + 2] for i in range(0, len(raw), 2))
        code = {"F32": "f", "F64": "d", "F16": "e", "BF16": "f", "I64": "q", "I32": "i", "U8": "B", "BOOL": "?"}[entry["dtype"]]
        values = struct.unpack(f"<{len(raw) // struct.calcsize(code)}{code}", raw)
        read[name] = [entry["dtype"], entry["shape"], [float(v) for v in values]]
    return read


def metadata_of(path):
    data = path.read_bytes()
    return json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])["__metadata__"]


# ---- files as torch.save() writes them, without torch -------------------------------------------------------------------

class Storage:
    def __init__(self, key, elements, kind="FloatStorage"):
        self.key, self.elements, self.kind = key, elements, kind


class Tensor:
    def __init__(self, storage, size, stride, offset=0):
        self.arguments = storage, offset, size, stride, False, collections.OrderedDict()


class Pickler(pickle._Pickler):
    """Writes names as they are, whether or not there is such a thing here; and storages by their keys."""

    def persistent_id(self, value):
        return ("storage", Named("torch", value.kind), value.key, "cpu", value.elements) if isinstance(value, Storage) else None

    def save(self, value, save_persistent_id=True):
        if isinstance(value, Named):
            self.write(b"c" + f"{value.module}\n{value.name}\n".encode())
        elif isinstance(value, Tensor):
            self.save(Call(Named("torch._utils", "_rebuild_tensor_v2"), *value.arguments))
        elif isinstance(value, Call):
            self.save(value.function)
            self.save(value.arguments)
            self.write(b"R")
        else:
            super().save(value, save_persistent_id)


class Named:
    def __init__(self, module, name):
        self.module, self.name = module, name


class Call:
    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments


def pickled(value, protocol=2):
    out = io.BytesIO()
    Pickler(out, protocol).dump(value)
    return out.getvalue()


def archive(pickle_bytes, storages={}, packed=zipfile.ZIP_STORED, **more):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", packed) as zip:
        zip.writestr("archive/data.pkl", pickle_bytes)
        for key, data in storages.items():
            zip.writestr(f"archive/data/{key}", data)
        for name, data in more.items():
            zip.writestr(f"archive/{name}", data)
    return out.getvalue()


class Convert(ProgramCase):
    def refused(self, data, said, *words):
        (self.dir / "x.pth").write_bytes(data)
        message = self.run_program("weights", "convert", "x.pth", *words, code=4).stderr
        self.assertIn(said, message)
        self.assertFalse((self.dir / "x.safetensors").exists())
        return message

    def test_what_pytorch_has_written(self):
        expected = json.loads((HERE / "pth.json").read_text())
        self.assertEqual(set(expected), {path.stem for path in FILES.glob("*.pth")})
        for name, tensors in expected.items():
            with self.subTest(name):
                words = ["--key", "model"] if name == "checkpoint" else []
                self.run_program("weights", "convert", FILES / f"{name}.pth", "--out", "x.safetensors", *words)
                self.assertEqual(values_in(self.dir / "x.safetensors"), tensors)

    def test_a_checkpoint_names_its_state_dicts(self):
        message = self.run_program("weights", "convert", FILES / "checkpoint.pth", "--out", "x.safetensors", code=4).stderr
        self.assertIn("'epoch' is no tensor", message)
        self.assertIn("--key model", message)
        self.assertIn("no dictionary 'ema', but model", self.run_program("weights", "convert", FILES / "checkpoint.pth", "--out", "x", "--key", "ema",
                                                                         code=4).stderr)

    def test_nothing_is_executed(self):
        state = {"w": Tensor(Storage("0", 2), (2,), (1,))}
        ran = self.dir / "ran"
        for module, name, *arguments in (("os", "system", f"touch {ran}"), ("posix", "system", f"touch {ran}"), ("builtins", "eval", "1"),
                                         ("torch", "load", "x"), ("torch.nn.modules.linear", "Linear", 2, 2), ("torch", "FloatTensor"),
                                         ("collections", "defaultdict"), ("torch._utils", "_rebuild_tensor_v3"), ("torch.storage", "UntypedStorage")):
            said = f"it names {module}.{name}, which no state_dict of tensors needs; nothing was executed"
            self.refused(archive(pickled(Call(Named(module, name), *arguments))), said)
            self.refused(archive(pickled({**state, "x": Call(Named(module, name), *arguments)}), {"0": bytes(8)}), said)
        self.assertFalse(ran.exists())
        # OrderedDict and storages are names, too, which nobody may call with something.
        for function in (Named("collections", "OrderedDict"), Named("torch", "FloatStorage")):
            self.refused(archive(pickled(Call(function, 7))), "its pickle calls")
        for code in (b"i", b"o", b"\x81", b"\x93", b"\x82\x01", b"0", b"2", b"I1\n", b"P0\n", b"\x95" + bytes(8)):
            self.refused(archive(b"\x80\x02" + code + b"."), f"byte 2 of its pickle is the instruction {code[0]}, which no state_dict")

    def test_what_is_none(self):
        good = pickled({"w": Tensor(Storage("0", 6), (2, 3), (3, 1))})
        data = {"0": bytes(24)}
        self.refused(b"", "is no file of torch.save()")
        self.refused(b"PK\3\4", "no directory at its end")
        self.refused(archive(good, data)[:-30], "no directory at its end")
        self.refused(archive(good, data, zipfile.ZIP_DEFLATED), "is packed or encrypted")
        self.refused(archive(good, data).replace(b"archive/data.pkl", b"archive/data_pkl"), "without data.pkl")
        self.refused(archive(good, data, **{"constants.pkl": b""}), "TorchScript")
        self.refused(archive(good, data, byteorder="big"), "another order")
        self.refused(archive(good), "data/0, which is not there")
        self.refused(archive(good, {"0": bytes(23)}), "has 23 bytes, expected 6 elements of float32")
        self.refused(archive(pickled({}, 4)), "of protocol 4, expected 2")
        self.refused(archive(pickled([1])), "holds no dictionary")
        self.refused(archive(pickled({})), "has no tensors")
        self.refused(archive(pickled({3: 4})), "a key is no tensor")
        self.refused(pickle.dumps(0x1950a86a20f9469cfc6c, 2), "before PyTorch 1.6")
        damaged = bytearray(archive(good, {"0": b"ringgrad" * 3}))
        damaged[damaged.index(b"ringgrad")] ^= 1
        self.refused(damaged, "CRC-32")
        self.refused(archive(pickled({"w": Tensor(Storage("0", 6, "CharStorage"), (6,), (1,))}), {"0": bytes(6)}), "torch.CharStorage")
        self.refused(archive(pickled({"w": Tensor(Storage("0", 6, "BoolStorage"), (6,), (1,))}), {"0": bytes([0, 1, 2, 0, 0, 0])}), "neither 0 nor 1")

    def test_views_lie_in_their_storages(self):
        for size, stride, offset in (((2, 3), (3, 1), 1), ((7,), (1,), 0), ((1,), (1,), 6), ((1,), (1,), -1), ((2,), (-1,), 3), ((-1,), (1,), 0),
                                     ((2**40, 2**40), (0, 0), 0), ((2,), (2**62,), 5), ((2,) * 9, (0,) * 9, 0), ((0,), (1,), 7), ((2, 2), (1,), 0)):
            with self.subTest(f"{size} {stride} {offset}"):
                self.refused(archive(pickled({"w": Tensor(Storage("0", 6), size, stride, offset)}), {"0": bytes(24)}), "a tensor")
        many = archive(pickled({"w": Tensor(Storage("0", 6), (2**40,), (0,))}), {"0": bytes(24)})
        self.refused(many, "times the file's bytes")
        self.refused(archive(pickled({str(i): Tensor(Storage("0", 6), (1000,), (0,)) for i in range(500)}), {"0": bytes(24)}), "times the file's bytes")

    def test_no_cut_or_flipped_byte_crashes(self):
        whole = (FILES / "module.pth").read_bytes()
        for at in range(0, len(whole), 211):
            for data in (whole[:at], whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]):
                (self.dir / "x.pth").write_bytes(data)
                done = self.start("weights", "convert", "x.pth", "--out", "x.safetensors")
                out, errors = done.communicate()
                self.assertIn(done.returncode, (0, 4), errors)

    def test_classes_have_names_of_their_own(self):
        """A list of names as another system writes it, and one that has a name twice, as ImageNet's usual one has."""
        sizes = {"conv1.weight": (1, 3, 7, 7), "fc.bias": (2,)}
        strides = {"conv1.weight": (147, 49, 7, 1)}
        state = {name: Tensor(Storage("0", 147), sizes.get(name, (1,)), strides.get(name, (1,))) for name in torchvision_resnet18(2)}
        (self.dir / "x.pth").write_bytes(archive(pickled(state), {"0": bytes(4 * 147)}))
        names = self.dir / "names.txt"
        words = ["weights", "convert", "x.pth", "--classes", "names.txt"]
        names.write_bytes(b"crane\ncrane\n")
        self.assertIn("names.txt has a line twice", self.run_program(*words, code=4).stderr)
        self.assertFalse((self.dir / "x.safetensors").exists())
        names.write_bytes(b"crane\r\nheron\r\n")
        self.run_program(*words)
        self.assertEqual(json.loads(metadata_of(self.dir / "x.safetensors")["classes"]), ["crane", "heron"])

    def test_nothing_is_replaced_unasked(self):
        (self.dir / "x.safetensors").write_text("mine")
        (self.dir / "x.pth").write_bytes((FILES / "module.pth").read_bytes())
        self.assertIn("is there already; --out", self.run_program("weights", "convert", "x.pth", code=2).stderr)
        before = (self.dir / "x.pth").read_bytes()
        for way in ("x.pth", self.dir / "x.pth"):
            self.assertIn("what is read, which would be lost", self.run_program("weights", "convert", "x.pth", "--out", way, code=2).stderr)
        self.assertEqual((self.dir / "x.pth").read_bytes(), before)
        self.assertEqual((self.dir / "x.safetensors").read_text(), "mine")
        self.assertIn("there is no nosuch.pth", self.run_program("train", "--init", "nosuch.pth", code=4).stderr)


class Get(ProgramCase):
    def test_list_and_what_to_do_without_a_network(self):
        listed = self.run_program("weights", "list", "--data-dir", "data").stdout
        self.assertRegex(listed, r"resnet50 .* weights get resnet50")
        report = json.loads(self.run_program("weights", "list", "--json").stdout)["weights"]
        self.assertEqual([w["name"] for w in report], ["resnet18", "resnet34", "resnet50"])
        nowhere = {"https_proxy": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}
        message = self.run_program("weights", "get", "resnet18", "--data-dir", "data", env=nowhere, code=3).stderr
        self.assertIn("https://download.pytorch.org/models/resnet18-f37072fd.pth", message)
        self.assertIn("put it at data/weights/resnet18-f37072fd.pth", message)
        self.assertIn("Did you mean 'resnet18'", self.run_program("weights", "get", "resnet19", code=2).stderr)
        # A file that lies there is checked, too.
        (self.dir / "data/weights/resnet18-f37072fd.pth").write_bytes((FILES / "module.pth").read_bytes())
        self.run_program("weights", "get", "resnet18", "--data-dir", "data", env=nowhere, code=3)


class Messages(DigitsCase):
    def test_the_one_command_that_helps(self):
        (self.dir / "x.pth").write_bytes((FILES / "module.pth").read_bytes())
        for words in (("train", "--init", "x.pth"), ("eval", "x.pth"), ("predict", "x.pth", "1"), ("inspect", "x.pth"), ("export", "--python", "x.pth")):
            message = self.run_program(*words, code=4).stderr
            self.assertRegex(message, r"x\.pth is PyTorch's; \S+ weights convert \S*x\.pth makes a \.safetensors file of it")
        self.short_run("run", 1, "--parallel", "none", "--model", "resnet20")
        message = self.run_program("train", "--data", "digits", "--model", "cnn", "--init", "run", "--parallel", "none", code=4).stderr
        self.assertIn("does not fit this model, but resnet20: --model resnet20", message)
        self.assertLess(len(message), 400)


def residual_network(depth):
    """torchvision's, as He et al. and its source have it."""
    from torch import nn
    blocks, bottleneck = {18: ((2, 2, 2, 2), False), 34: ((3, 4, 6, 3), False), 50: ((3, 4, 6, 3), True)}[depth]

    class Block(nn.Module):
        def __init__(self, inside, channels, stride):
            super().__init__()
            out = channels * (4 if bottleneck else 1)
            shapes = [(inside, channels, 1, 1), (channels, channels, 3, stride), (channels, out, 1, 1)] if bottleneck else \
                [(inside, channels, 3, stride), (channels, out, 3, 1)]
            for i, (a, b, side, step) in enumerate(shapes, 1):
                setattr(self, f"conv{i}", nn.Conv2d(a, b, side, step, side // 2, bias=False))
                setattr(self, f"bn{i}", nn.BatchNorm2d(b))
            self.count = len(shapes)
            self.downsample = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out)) if stride > 1 or inside != out else None

        def forward(self, x):
            y = x
            for i in range(1, self.count + 1):
                y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
                y = torch.relu(y) if i < self.count else y
            return torch.relu(y + (self.downsample(x) if self.downsample else x))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
            inside = 64
            for i, count in enumerate(blocks):
                layer = []
                for b in range(count):
                    layer.append(Block(inside, 64 << i, 2 if i and b == 0 else 1))
                    inside = (64 << i) * (4 if bottleneck else 1)
                setattr(self, f"layer{i + 1}", nn.Sequential(*layer))
            self.fc = nn.Linear(inside, 1000)

        def forward(self, x):
            x = nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
            for i in range(1, 5):
                x = getattr(self, f"layer{i}")(x)
            return self.fc(x.mean((2, 3)))

    return Net()


@unittest.skipUnless(torch, "no torch")
class WithTorch(ProgramCase):
    def test_networks_see_what_pytorch_sees(self):
        for depth in (18, 34, 50):
            with self.subTest(depth):
                torch.manual_seed(depth)
                net = residual_network(depth)
                for module in net.modules():
                    if isinstance(module, torch.nn.BatchNorm2d):
                        module.running_mean.normal_(0, 0.1), module.running_var.uniform_(0.5, 2), module.weight.data.uniform_(0.2, 0.8)
                net.fc.weight.data.mul_(20)
                torch.save(net.state_dict(), self.dir / "net.pth")
                (self.dir / "net.safetensors").unlink(missing_ok=True)
                report = json.loads(self.run_program("weights", "convert", "net.pth", "--json").stdout)
                self.assertEqual(report["model"], f"resnet{depth}")
                self.assertEqual(metadata_of(self.dir / "net.safetensors")["input_size"], "[3, 224, 224]")
                picture = torch.randint(0, 256, (224, 224, 3), dtype=torch.uint8)
                (self.dir / "x.ppm").write_bytes(b"P6 224 224 255\n" + picture.numpy().tobytes())
                seen = json.loads(self.run_program("predict", "net.safetensors", "x.ppm", "--json").stdout)["probabilities"]
                x = picture.permute(2, 0, 1)[None].double() / 255
                x = (x - torch.tensor([0.485, 0.456, 0.406])[:, None, None]) / torch.tensor([0.229, 0.224, 0.225])[:, None, None]
                with torch.no_grad():
                    wanted = net.double().eval()(x).softmax(1)[0]
                found = torch.tensor([seen[str(i)] for i in range(1000)], dtype=torch.float64)
                spread = (wanted.max() / wanted.min()).log().item()
                self.assertGreater(spread, 2)  # it tells classes apart at all
                # Logits in float32 behind some 50 sums, each off by a few roundings of 2^-24 of its parts.
                self.assertLess((found.log() - wanted.log()).abs().max().item(), 5e-4 * spread)

    def test_new_files_of_torch(self):
        sys.path.insert(0, str(HERE))
        import make_pth
        for name, saved in make_pth.files():
            torch.save(saved, self.dir / "x.pth")
            words = ["--key", "model"] if name == "checkpoint" else []
            self.run_program("weights", "convert", "x.pth", "--out", "x.safetensors", *words)
            tensors = saved["model"] if "model" in saved else saved
            found = values_in(self.dir / "x.safetensors")
            self.assertEqual({key: found[key][1:] for key in found}, {key: [list(t.shape), t.detach().double().flatten().tolist()] for key, t in tensors.items()})
        torch.save({"w": torch.ones(2)}, self.dir / "x.pth", _use_new_zipfile_serialization=False)
        self.assertIn("before PyTorch 1.6", self.run_program("weights", "convert", "x.pth", "--out", "y.safetensors", code=4).stderr)
        torch.save(torch.nn.Linear(2, 2), self.dir / "x.pth")
        self.assertIn("it names torch.nn.modules.linear.Linear", self.run_program("weights", "convert", "x.pth", "--out", "y.safetensors", code=4).stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
