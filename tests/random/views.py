"""Reshaping, indexing, and conversions of dtype and layout, for random programs."""

import torch
import torch.nn.functional as F
from operations import ANY, brackets, one, operation, put
from reductions import along


def shaped(r, pool):
    x = pool.pick(r.choice(ANY))
    left, shape = pool.tensor(x).numel(), []
    while left > 1 and len(shape) < 4:
        size = r.choice([d for d in range(1, left + 1) if left % d == 0]) if r.random() < 0.7 else left
        shape, left = shape + [size], left // size
    shape += [left] if left != 1 else []
    if shape and left and r.random() < 0.3:
        shape[r.randrange(len(shape))] = -1
    return [x], {"shape": shape}


operation("reshape", shaped)(lambda args, x: x.reshape(args["shape"]))


def span(r, pool):
    x = pool.pick(r.choice(ANY), min_dim=1)
    rank = pool.tensor(x).dim()
    begin = r.randrange(rank)
    return [x], {"begin": begin, "end": r.randint(begin, rank - 1) - (rank if r.random() < 0.4 else 0)}


operation("flatten", span)(lambda args, x: x.flatten(args["begin"], args["end"]))


def two_dims(r, pool):
    x = pool.pick(r.choice(ANY), min_dim=1)
    rank = pool.tensor(x).dim()
    return [x], {"dim0": r.randint(-rank, rank - 1), "dim1": r.randint(-rank, rank - 1)}


operation("transpose", two_dims)(lambda args, x: x.transpose(args["dim0"], args["dim1"]))


def ordered(r, pool):
    x = pool.pick(r.choice(ANY), min_dim=1)
    order = list(range(pool.tensor(x).dim()))
    r.shuffle(order)
    return [x], {"order": order}


operation("permute", ordered)(lambda args, x: x.permute(args["order"]))


def sliced(r, pool):
    inputs, args = along(ANY)(r, pool)
    size = pool.shape(inputs[0])[args["dim"]]
    begin, end = r.randint(-size - 1, size), r.choice([r.randint(-size - 1, size + 1), 2**63 - 1])
    return inputs, {**args, "begin": begin, "end": end, "step": r.choice([1, 1, 2, 3])}


@operation("slice", sliced)
def _(args, x):
    at = [slice(None)] * x.dim()
    at[args["dim"]] = slice(args["begin"], args["end"], args["step"])
    return x[tuple(at)]


def narrowed(r, pool):
    inputs, args = along(ANY)(r, pool)
    size = pool.shape(inputs[0])[args["dim"]]
    begin = r.randrange(size)
    return inputs, {**args, "begin": begin, "length": r.randint(0, size - begin)}


operation("narrow", narrowed)(lambda args, x: x.narrow(args["dim"], args["begin"], args["length"]))


def selected(r, pool):
    inputs, args = along(ANY)(r, pool)
    size = pool.shape(inputs[0])[args["dim"]]
    return inputs, {**args, "place": r.randint(-size, size - 1)}


operation("select", selected)(lambda args, x: x.select(args["dim"], args["place"]))


def expanded(r, pool):
    x = pool.pick(r.choice(ANY), max_dim=3)
    shape = [r.choice([1, 2, 3]) if size == 1 else r.choice([size, -1]) for size in pool.shape(x)]
    return [x], {"shape": [r.choice([1, 2, 3])] * r.choice([0, 0, 1]) + shape}


operation("expand", expanded)(lambda args, x: x.expand(args["shape"]))


def repeated(r, pool):
    x = pool.pick(r.choice(ANY), max_dim=3)
    return [x], {"times": [r.choice([1, 1, 2, 3]) for _ in range(pool.tensor(x).dim() + r.choice([0, 0, 1]))]}


operation("repeat", repeated)(lambda args, x: x.repeat(args["times"]))


def squeezed(r, pool):
    x = pool.pick(r.choice(ANY), min_dim=1)
    ones = [d for d, size in enumerate(pool.shape(x)) if size == 1]
    return ([x], {"dim": r.choice(ones)}) if ones else None


operation("squeeze", squeezed)(lambda args, x: x.squeeze(args["dim"]))
operation("squeeze_all", one(ANY))(lambda args, x: x.squeeze())


def unsqueezed(r, pool):
    x = pool.pick(r.choice(ANY), max_dim=3)
    return [x], {"dim": r.randint(-pool.tensor(x).dim() - 1, pool.tensor(x).dim())}


operation("unsqueeze", unsqueezed)(lambda args, x: x.unsqueeze(args["dim"]))


def parted(r, pool):
    inputs, args = along(ANY)(r, pool)
    left, sizes = pool.shape(inputs[0])[args["dim"]], []
    while left:
        sizes.append(r.randint(0 if len(sizes) < 2 else 1, left))
        left -= sizes[-1]
    return inputs, {**args, "sizes": sizes}


operation("split", parted)(lambda args, x: tuple(x.split(args["sizes"], args["dim"])))
operation("chunk", along(ANY, chunks=[1, 2, 3, 4]))(lambda args, x: tuple(x.chunk(args["chunks"], args["dim"])))


def joined(r, pool):
    inputs, args = along(ANY)(r, pool)
    shape = pool.shape(inputs[0])
    for _ in range(r.randint(0, 3)):
        shape[args["dim"]] = r.choice([0, 1, 2, shape[args["dim"]]])
        inputs.append(pool.pick_shape(pool.dtype(inputs[0]), list(shape)))
    r.shuffle(inputs)
    return inputs, args


operation("cat", joined)(lambda args, *xs: torch.cat(xs, args["dim"]))


def stacked(r, pool):
    x = pool.pick(r.choice(ANY), max_dim=3)
    rank = pool.tensor(x).dim()
    more = [pool.pick_shape(pool.dtype(x), pool.shape(x)) for _ in range(r.randint(0, 2))]
    return [x, *more], {"dim": r.randint(-rank - 1, rank)}


operation("stack", stacked)(lambda args, *xs: torch.stack(xs, args["dim"]))


def padded(r, pool):
    x = pool.pick("float", min_dim=1)
    count = 2 * r.randint(1, min(3, pool.tensor(x).dim()))
    return [x], {"widths": [r.choice([0, 1, 2]) for _ in range(count)], "c": r.choice([0.0, 0.0, 1.0, -2.5])}


operation("pad", padded)(lambda args, x: F.pad(x, args["widths"], value=args["c"]))


def triangle(r, pool):
    return [pool.pick(r.choice(("float", "whole")), min_dim=2)], {"diagonal": r.randint(-3, 3)}


operation("tril", triangle)(lambda args, x: torch.tril(x, args["diagonal"]))
operation("triu", triangle)(lambda args, x: torch.triu(x, args["diagonal"]))


# ---- picking elements -----------------------------------------------------------------------------------------------
def rows(r, pool):
    inputs, args = along(("float", "whole"))(r, pool)
    size = pool.shape(inputs[0])[args["dim"]]
    return inputs + [pool.new("int64", [r.choice([0, 1, 2, 5])], values=range(size))], args


operation("index_select", rows)(lambda args, x, i: x.index_select(args["dim"], i))


def row_values(r, pool):
    inputs, args = rows(r, pool)
    shape = pool.shape(inputs[0])
    shape[args["dim"]] = pool.shape(inputs[1])[0]
    return inputs + [pool.pick_shape(pool.dtype(inputs[0]), shape)], args


operation("index_add", lambda r, pool: row_values(r, pool))(lambda args, x, i, v: x.index_add(args["dim"], i, v))


def gathered(r, pool):
    inputs, args = along()(r, pool)
    shape = pool.shape(inputs[0])
    size, shape[args["dim"]] = shape[args["dim"]], r.choice([0, 1, 2, 4])
    return inputs + [pool.new("int64", shape, values=range(size))], args


operation("gather", gathered)(lambda args, x, i: x.gather(args["dim"], i))


def scattered(unique):
    def make(r, pool):
        inputs, args = gathered(r, pool)
        if unique:  # each place once
            shape, size = pool.shape(inputs[1]), pool.shape(inputs[0])[args["dim"]]
            order = torch.tensor(r.sample(range(size), min(size, shape[args["dim"]])), dtype=torch.int64)
            shape[args["dim"]] = len(order)
            at = [1] * len(shape)
            at[args["dim"]] = len(order)
            inputs[1] = pool.add(order.reshape(at).expand(shape).contiguous())
        return inputs + [pool.pick_shape(pool.dtype(inputs[0]), pool.shape(inputs[1]))], args

    return make


operation("scatter_add", scattered(False))(lambda args, x, i, v: x.scatter_add(args["dim"], i, v))
operation("scatter", scattered(True))(lambda args, x, i, v: x.scatter(args["dim"], i, v))


def embedded(r, pool):
    weight = pool.pick("float", min_dim=2, max_dim=2, filled=True)
    n = pool.shape(weight)[0]
    index = pool.new("int64", r.choice([[], [3], [2, 3], [0]]), values=range(n))
    return [index, weight], {"padding": r.choice([None, None, r.randrange(n)])}


operation("embedding", embedded)(lambda args, i, w: F.embedding(i, w, args["padding"]))


def hot(r, pool):
    classes = r.choice([1, 3, 7])
    return [pool.new("int64", r.choice([[], [4], [2, 3]]), values=range(classes))], {"classes": classes}


operation("one_hot", hot)(lambda args, x: F.one_hot(x, args["classes"]).float())


def indexed(r, pool):
    x = pool.pick(r.choice(ANY), min_dim=1, filled=True)
    inputs, args = pool.places(x)
    return [x, *inputs], args


operation("index", indexed)(lambda args, x, *tensors: x[brackets(args, tensors)])


def put_of(r, pool):
    x = pool.pick("float", min_dim=1, filled=True)
    accumulate = r.random() < 0.5
    inputs, args = pool.places(x, unique=not accumulate)
    size = list(pool.tensor(x)[brackets(args, map(pool.tensor, inputs))].shape)
    return [x, pool.new(pool.dtype(x), size), *inputs], {**args, "accumulate": accumulate}


operation("index_put", put_of)(put)


# ---- other dtypes and layouts ---------------------------------------------------------------------------------------
FLOATING = {"float32", "float64", "bfloat16", "float16"}


def converted(r, pool):
    x = pool.pick(r.choice(ANY))
    to = r.choice(["float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool"])
    value = pool.tensor(x)
    if to in ("int64", "int32", "uint8") and value.is_floating_point():
        if not bool((value.abs() < 100).all()) or to == "uint8":  # else there is no right answer
            return None
    return [x], {"dtype": to, "from": pool.dtype(x)}


@operation("to", converted)
def _(args, x):
    if args["dtype"] == args["from"]:
        return x
    reference = x.dtype == torch.float64 and args["from"] != "float64"
    if reference and args["dtype"] in FLOATING:
        return x.clone()
    return x.to(getattr(torch, args["dtype"]))


operation("contiguous", one(ANY))(lambda args, x: x.contiguous())
operation("clone", one(ANY))(lambda args, x: x.clone())
operation("detach", one(ANY))(lambda args, x: x.detach())


@operation("to_layout", lambda r, pool: ([pool.images(r)], {"layout": r.choice(["blocked", "last", "strided"])}))
def _(args, x):
    return x.clone()
