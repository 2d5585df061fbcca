"""Makes random programs: tensors, steps that PyTorch can run on them, roots and captures."""

import math
import random

import torch
from operations import MAKE, REFERENCE

NAMES = ["float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool"]
DTYPES = {name: getattr(torch, name) for name in NAMES}
NAME_OF = {dtype: name for name, dtype in DTYPES.items()}
SIZES = [1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 16, 17, 33]
MAX_NUMEL = 4000
# Layouts have no counterpart in PyTorch, so it cannot say which tensors share memory.
NOT_IN_PLACE = {"to_layout"}


def to_json(x):
    """A tensor as random_programs.cpp reads it."""
    flat = x.detach().contiguous().reshape(-1)
    return {"dtype": NAME_OF[x.dtype], "shape": list(x.shape), "bytes": bytes(flat.view(torch.uint8).tolist()).hex()}


def from_json(value):
    if value is None:
        return None
    data = bytearray.fromhex(value["bytes"])
    dtype = DTYPES[value["dtype"]]
    flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
    return flat.reshape(value["shape"])


class Pool:
    """Holds the tensors: the program's inputs with their bits, and PyTorch's results."""

    def __init__(self, r, tracked):
        self.r, self.tracked = r, tracked
        self.dtype_name = r.choice(["float32", "float32", "float64", "bfloat16", "float16"])
        self.kind = r.choice(["normal", "normal", "small", "wide", "special", "whole"])
        self.tensors, self.inputs, self.leaves, self.count = {}, {}, [], 0

    # ---- what there is
    def tensor(self, name):
        return self.tensors[name]

    def shape(self, name):
        return list(self.tensors[name].shape)

    def dtype(self, name):
        return NAME_OF[self.tensors[name].dtype]

    def is_whole(self, name):
        return not self.tensors[name].is_floating_point()

    def fresh(self):
        self.count += 1
        return f"t{self.count}"

    def is_kind(self, x, kind):
        if kind == "float":
            return x.is_floating_point()
        if kind == "whole":
            return not x.is_floating_point() and x.dtype != torch.bool
        return x.dtype == DTYPES[kind]

    def dtype_for(self, kind):
        return {"float": self.dtype_name, "whole": self.r.choice(["int64", "int64", "int32", "uint8"])}.get(kind, kind)

    def random_shape(self, low, high, filled):
        shape = [self.r.choice(SIZES) for _ in range(self.r.randint(low, max(low, min(high, 4))))]
        while shape and torch.Size(shape).numel() > MAX_NUMEL // 4:
            shape[self.r.randrange(len(shape))] = self.r.choice([1, 2])
        if shape and not filled and self.r.random() < 0.04:
            shape[self.r.randrange(len(shape))] = 0
        return shape

    def pick(self, kind, min_dim=0, max_dim=9, filled=False, positive=False, unit=False):
        """Returns an existing tensor, preferably a recent one, or a new one."""
        suitable = [
            name
            for name, x in self.tensors.items()
            if self.is_kind(x, kind)
            and min_dim <= x.dim() <= max_dim
            and (not filled or x.numel())
            and (not positive or bool((x > 0).all()))
            and (not unit or bool(((x >= 0.001) & (x <= 0.999)).all()))  # here and there
        ]
        if suitable and self.r.random() < 0.8:
            return self.r.choice(suitable[-4:] if self.r.random() < 0.6 else suitable)
        shape = self.random_shape(min_dim, max_dim, filled)
        return self.new(self.dtype_for(kind), shape, parameter=True, positive=positive, unit=unit)

    def pick_shape(self, kind, shape):
        suitable = [n for n, x in self.tensors.items() if self.is_kind(x, kind) and list(x.shape) == shape]
        if suitable and self.r.random() < 0.7:
            return self.r.choice(suitable)
        return self.new(self.dtype_for(kind), shape, parameter=True)

    def images(self, r):
        return self.pick("float", min_dim=4, max_dim=4, filled=True)

    def like_broadcast(self, name, smaller=False):
        """Returns a second operand: of the same dtype, and of a shape that broadcasts."""
        shape = self.shape(name)
        shape = [1 if self.r.random() < 0.25 else size for size in shape][self.r.choice([0, 0, 0, 1]) :]
        if not smaller and self.r.random() < 0.1 and len(shape) < 4:
            shape = [self.r.choice([1, 2, 3])] + self.shape(name)
        return self.pick_shape(self.dtype(name), shape)

    def target(self, kind):
        """Returns a tensor that a step may write to, or None."""
        suitable = [
            name
            for name, x in self.tensors.items()
            if self.is_kind(x, kind) and x.numel() and (x.grad_fn is not None if self.tracked else self.alone(x))
        ]
        return self.r.choice(suitable) if suitable else None

    @staticmethod
    def alone(x):
        return not any(size > 1 and stride == 0 for size, stride in zip(x.shape, x.stride()))

    def mask_for(self, name):
        shape = [1 if self.r.random() < 0.2 else size for size in self.shape(name)]
        return self.new("bool", shape)

    def weight_dtype(self, name, r):
        dtype = self.dtype(name)
        return "float32" if dtype in ("bfloat16", "float16") and r.random() < 0.4 else dtype

    def statistics_dtype(self, name):
        return "float64" if self.dtype(name) == "float64" else "float32"

    def number_for(self, name):
        r, dtype = self.r, self.tensors[name].dtype
        if dtype == torch.uint8:
            return r.choice([0, 1, 2, 7, 255])
        if dtype == torch.int64 and r.random() < 0.3:
            return r.choice([2**53 + 1, -(2**53) - 1, 2**62 + 3, 2**31])
        if not dtype.is_floating_point:
            return r.choice([0, 1, -1, 2, 3, 7, -5, 1000])
        return r.choice([0.5, 2.0, -1.0, 0.1, 3.0, -0.7, 1e-3, 1.0, 100.0])

    def places(self, name, unique=False):
        """Returns the entries of a random index of this tensor."""
        r, inputs, at, shape = self.r, [], [], self.shape(name)
        count = r.choice([None, 1, 2, 3])
        for d, size in enumerate(shape):
            kind = r.choice(["place", "slice", "slice", "tensor", "bool", "stop"])
            if kind == "stop":
                at += ["..."] if r.random() < 0.5 else []
                break
            if kind == "place":
                at.append(r.randint(-size, size - 1))
            elif kind == "slice":
                at.append([r.choice([None, r.randint(-size, size)]), r.choice([None, r.randint(-size, size)]), 1])
            elif kind == "bool" and not any(place == "tensor" for place in at):
                inputs.append(self.new("bool", [size]))
                at.append("tensor")
                count = int(self.tensors[inputs[-1]].sum())
            elif count is not None and (not unique or (count <= size and "tensor" not in at)):
                values = r.sample(range(size), count) if unique else [r.randint(-size, size - 1) for _ in range(count)]
                inputs.append(self.add(torch.tensor(values, dtype=torch.int64)))
                at.append("tensor")
            else:
                at.append([None, None, 1])
        return inputs, {"at": at or ["..."]}

    # ---- what comes
    def values(self, dtype, shape):
        r, numel = self.r, torch.Size(shape).numel()
        generator = torch.Generator().manual_seed(r.getrandbits(40))
        x = torch.randn(numel, generator=generator, dtype=torch.float64)
        info = torch.finfo(dtype)
        if self.kind == "small":
            x *= 0.1
        if self.kind == "whole":
            x = (2 * x).round()
        if self.kind == "wide":
            exponents = torch.randn(numel, generator=generator, dtype=torch.float64)
            x *= 10.0 ** (exponents * 0.05 * math.log10(info.max))
        if self.kind == "special":
            special = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), info.max, -info.max, info.tiny, info.tiny / 4]
            for i in range(numel):
                if r.random() < 0.05:
                    x[i] = r.choice(special)
        return x.reshape(shape)

    def new(self, dtype_name, shape, parameter=False, positive=False, unit=False, values=None, finite=False):
        """Adds a new input. A `parameter` may require a gradient."""
        r, dtype, numel = self.r, DTYPES[dtype_name], torch.Size(shape).numel()
        if values is not None:
            values = list(values)
            x = torch.tensor([r.choice(values) for _ in range(numel)] if numel else [], dtype=dtype).reshape(shape)
        elif dtype == torch.bool:
            x = torch.tensor([r.random() < 0.5 for _ in range(numel)], dtype=dtype).reshape(shape)
        elif dtype.is_floating_point:
            x = self.values(dtype, shape)
            if finite and self.kind == "special":  # a weight meets zeros of the padding, and 0 · NaN is no zero
                x = x.nan_to_num(1, 1, 1).clamp(-9, 9)
            if unit or positive:
                x = (torch.sigmoid(x) if unit else x.abs().clamp(max=9) + 0.1).nan_to_num(0.5)
            x = x.to(dtype)
        else:
            low, high = (0, 255) if dtype == torch.uint8 else r.choice([(-9, 9), (-9, 9), (-(2**31), 2**31 - 1)])
            if dtype == torch.int64 and r.random() < 0.3:
                low, high = -(2**63), 2**63 - 1
            x = torch.tensor([r.randint(low, high) for _ in range(numel)], dtype=dtype).reshape(shape)
        return self.add(x, leaf=self.tracked and parameter and dtype.is_floating_point and r.random() < 0.8)

    def add(self, x, leaf=False):
        name = self.fresh()
        self.inputs[name] = to_json(x)
        self.tensors[name] = x.clone().requires_grad_(leaf)
        if leaf:
            self.leaves.append(name)
        return name


def compute(op, args, inputs, tracked):
    """Returns PyTorch's results as a list, without history if nothing is tracked."""
    with torch.set_grad_enabled(tracked):
        out = REFERENCE[op](args, *inputs)
    out = list(out) if isinstance(out, tuple) else [out]
    return out if tracked else [x.detach() for x in out]  # a view of what requires a gradient does, too


def make_step(r, pool, operations):
    """Makes a random step and adds its results to the pool. Returns None if that fails."""
    op = r.choice(operations)
    made = MAKE[op](r, pool)
    if not made:
        return None
    inputs, args = made
    no_grad = pool.tracked and not op.endswith("_") and r.random() < 0.03
    tensors = [pool.tensors[name] for name in inputs]
    try:
        out = compute(op, args, tensors, pool.tracked and not no_grad)
    except RuntimeError:
        return None  # it refuses what the step wants; ringgrad may, too
    if any(x.numel() > MAX_NUMEL or x.dim() > 5 for x in out):
        return None
    broken = any(x.is_floating_point() and not bool(x.isfinite().all()) for x in out)
    if broken and r.random() < (0.7 if pool.kind == "special" else 0.9):
        return None
    if op.endswith("_"):
        if not pool.tracked:  # all that share its memory see it
            tensors[0].copy_(out[0])
            return {"op": op, "in": inputs, "out": [inputs[0]], "args": args}
        if not out[0].requires_grad or out[0].shape != tensors[0].shape:
            return None
        del pool.tensors[inputs[0]]
    names = [pool.fresh() for _ in out]
    pool.tensors.update(zip(names, out))
    return {"op": op, "in": inputs, "out": names, "args": args, "no_grad": no_grad}


def make_program(seed, without=(), only=()):
    """Returns the program of this seed. `without` and `only` name operations."""
    r = random.Random(seed)
    tracked = r.random() < 0.7
    pool = Pool(r, tracked)
    operations = sorted(op for op in MAKE if op not in without and (not only or op in only))
    if not tracked:
        writes = [op for op in operations if op.endswith("_")]
        operations = [op for op in operations if op not in NOT_IN_PLACE] + 3 * writes
    steps, captures = [], {}
    while len(steps) < r.randint(3, 14):
        step = make_step(r, pool, operations)
        if step:
            steps.append(step)
        elif pool.count > 200:
            break
    candidates = [n for step in steps for n in step["out"] if n in pool.tensors and pool.tensors[n].requires_grad]
    way = r.choice(["backward", "backward", "grad"])
    for name in candidates:
        if pool.tensors[name].grad_fn is not None and r.random() < 0.5:
            captures[name] = "input" if way == "grad" else r.choice(["hook", "retain"])
    roots = r.sample(candidates, min(len(candidates), r.choice([1, 1, 2, 3])))
    cotangents = {}
    for name in roots:
        x = pool.tensors[name]
        generator = torch.Generator().manual_seed(r.getrandbits(40))
        cotangents[name] = to_json(torch.randn(x.shape, generator=generator).to(x.dtype))
    return {
        "seed": seed,
        "kind": pool.kind,
        "tensors": pool.inputs,
        "leaves": pool.leaves if roots else [],
        "tracked": tracked,
        # Winograd's algorithms spread numbers that are not finite, and the errors of the largest
        # pixels.
        "direct": pool.kind in ("special", "wide") or r.random() < 0.3,
        "steps": steps,
        "captures": captures,
        "way": way,
        "roots": roots,
        "cotangents": cotangents,
    }


