"""The operations of random programs: PyTorch's counterpart of each, and how to make a step.

The same names stand in operations.cpp. REFERENCE[name](args, *inputs) is a function of tensors of any floating dtype;
where ringgrad's contract differs from PyTorch's (autograd/ops.h), it is written after the contract. MAKE[name](random,
pool) gives the names of the inputs and the arguments, or None where nothing in the pool suits.
"""

import math

import torch
import torch.nn.functional as F

REFERENCE, MAKE = {}, {}
WHOLE = (torch.int64, torch.int32, torch.uint8)


def operation(name, make):
    def register(function):
        REFERENCE[name], MAKE[name] = function, make
        return function

    return register


def number(c):
    return float(c) if isinstance(c, str) else c



# ---- arithmetic and functions ---------------------------------------------------------------------------------------
def pair(kinds=("float", "whole")):
    def make(r, pool):
        a = pool.pick(r.choice(kinds))
        return [a, pool.like_broadcast(a)], {}

    return make


def one(kinds=("float",), **wanted):
    return lambda r, pool: ([pool.pick(r.choice(kinds), **wanted)], {})


def with_number(kinds=("float", "whole"), choices=None):
    def make(r, pool):
        x = pool.pick(r.choice(kinds))
        return [x], {"c": r.choice(choices) if choices else pool.number_for(x)}

    return make


for name, function in {"add": torch.add, "sub": torch.sub, "mul": torch.mul}.items():
    operation(name, pair())(lambda args, a, b, f=function: f(a, b))


def quotient(r, pool):
    inputs, args = pair()(r, pool)
    return (inputs, args) if inputs[0] != inputs[1] else None  # x / x has a gradient of roundings


operation("div", quotient)(lambda args, a, b: a / b)
operation("maximum", pair())(lambda args, a, b: torch.maximum(a, b))
operation("minimum", pair())(lambda args, a, b: torch.minimum(a, b))
operation("add_number", with_number())(lambda args, x: x + args["c"])
operation("sub_number", with_number())(lambda args, x: x - args["c"])
operation("number_sub", with_number())(lambda args, x: args["c"] - x)
operation("mul_number", with_number())(lambda args, x: x * args["c"])
operation("div_number", with_number(("float",)))(lambda args, x: x / args["c"])


class WithGradient(torch.autograd.Function):
    """A value, and the gradient backward(dy)."""

    @staticmethod
    def forward(ctx, x, value, backward):
        ctx.gradient = backward
        return value.clone()

    @staticmethod
    def backward(ctx, dy):
        return ctx.gradient(dy), None, None


def with_gradient(x, value, backward):
    """In float64, no wider dtype says what is right where PyTorch's products overflow on the way."""
    return WithGradient.apply(x, value.detach(), backward) if x.dtype == torch.float64 else value


def power(x, c):
    if c == 0.5:  # a root, as PyTorch's with a number: NaN at -inf, where pow of C is inf
        return x.sqrt()
    y, v = torch.pow(x, torch.tensor(c, dtype=x.dtype)), x.detach()
    gradients = {2: lambda dy: dy * v * 2, 3: lambda dy: dy * v * v * 3, -1: lambda dy: -(dy / v / v)}
    return with_gradient(x, y, gradients[c]) if c in gradients else y


@operation("number_div", with_number(("float",)))
def _(args, x):  # 1 / x² may overflow where c / x² does not
    c, v = args["c"], x.detach()
    return with_gradient(x, c / x, lambda dy: -dy * (c / v / v))


operation("pow", with_number(("float",), [2, 3, 0.5, -1, -2, 1, 0, 1.5, 2.5, -0.5, 4]))(
    lambda args, x: power(x, args["c"])
)
operation("leaky_relu", with_number(("float",), [0.01, 0.5, 0.0, 2.0]))(lambda args, x: F.leaky_relu(x, args["c"]))


@operation("elu", with_number(("float",), [1.0, 0.5, 2.0]))
def _(args, x):  # gradient NaN at NaN, where PyTorch's is NaN in vectors and dy in what they leave over
    nan = x.isnan()
    return torch.where(nan, x * torch.where(nan, x.detach(), 1), F.elu(x, args["c"]))


@operation("softplus", with_number(("float",), [1.0, 0.5, 3.0]))
def _(args, x):  # everywhere what PyTorch gives up to 20 / beta
    beta, v = args["c"], x.detach()
    y = torch.logaddexp(x * beta, torch.zeros((), dtype=x.dtype)) / beta
    return with_gradient(x, y, lambda dy: dy * torch.sigmoid(v * beta))


def relu(x):  # gradient 0 at NaN
    return torch.where(x.isnan(), x.detach(), x.relu())


def gelu(x):  # PyTorch's in float64 cancels where x is far below 0
    if x.dtype != torch.float64:
        return F.gelu(x)
    v = x.detach()
    below, density = 0.5 * torch.special.erfc(-v * 0.5**0.5), (-v * v / 2).exp() * (2 * math.pi) ** -0.5
    return with_gradient(x, v * below, lambda dy: dy * (below + v * density))


for name in "neg exp log log1p sin cos sqrt square relu gelu silu sigmoid tanh".split():
    wanted = {"positive": True} if name in ("log", "log1p", "sqrt") else {}
    function = {"gelu": gelu, "relu": relu, "silu": F.silu, "square": lambda x: power(x, 2)}.get(name) or getattr(torch, name)
    operation(name, one(("float",), **wanted))(lambda args, x, f=function: f(x))
operation("logsigmoid", one())(lambda args, x: F.logsigmoid(x))


@operation("abs", one())
def _(args, x):
    return absolute(x)


def absolute(x):  # gradient NaN at NaN
    nan = x.isnan()
    return torch.where(nan, x * torch.where(nan, x.detach(), torch.ones_like(x)), x.abs())


def limits(r, pool):
    low = r.choice([-1.0, 0.0, -0.5, -2.0])
    return [pool.pick("float")], {"low": low, "high": low + r.choice([0.5, 1.0, 4.0])}


@operation("clamp", limits)
def _(args, x):  # gradient 0 at the limits themselves
    inside = (x > args["low"]) & (x < args["high"])
    return torch.where(inside, x, x.detach().clamp(args["low"], args["high"]))


@operation("prelu", lambda r, pool: (lambda x: ([x, pool.like_broadcast(x, smaller=True)], {}))(pool.pick("float")))
def _(args, x, weight):
    return torch.where(x > 0, x, weight * torch.where(x > 0, 0, x))


# ---- comparisons ----------------------------------------------------------------------------------------------------
ANY = ("float", "whole", "bool")
for name in "eq ne lt le gt ge".split():
    operation(name, pair(ANY if name in ("eq", "ne") else ("float", "whole")))(
        lambda args, a, b, f=getattr(torch, name): f(a, b)
    )
for name in "eq lt ge".split():
    operation(name + "_number", with_number())(lambda args, x, f=getattr(torch, name): f(x, args["c"]))
operation("logical_not", one(("bool",)))(lambda args, x: ~x)
operation("logical_and", pair(("bool",)))(lambda args, a, b: a & b)
operation("logical_or", pair(("bool",)))(lambda args, a, b: a | b)
operation("isnan", one())(lambda args, x: x.isnan())


def over_dims(r, pool, kinds, **wanted):
    x = pool.pick(r.choice(kinds), **wanted)
    rank = pool.tensor(x).dim()
    dims = sorted(r.sample(range(rank), r.randint(0, rank))) if rank and r.random() < 0.7 else []
    dims = [d - rank if r.random() < 0.3 else d for d in dims]
    return [x], {"dims": dims, "keepdim": r.random() < 0.4}


def dims_of(x, args):
    return [d % x.dim() for d in args["dims"]] or list(range(x.dim()))


for name, kind in {"any": torch.Tensor.any, "all": torch.Tensor.all}.items():

    def _(args, x, f=kind):
        for d in sorted(dims_of(x, args), reverse=True):
            x = f(x, d, keepdim=args["keepdim"])
        return x.bool()

    operation(name, lambda r, pool: over_dims(r, pool, ANY))(_)


def masked(r, pool):
    a = pool.pick(r.choice(("float", "whole")))
    return [pool.mask_for(a), a, pool.like_broadcast(a)], {}


def masked_number(r, pool):
    a = pool.pick(r.choice(("float", "whole")))
    return [pool.mask_for(a), a], {"c": pool.number_for(a)}


def scalar_like(x, c):
    return torch.tensor(c, dtype=x.dtype)


operation("where", masked)(lambda args, m, a, b: torch.where(m, a, b))
operation("where_number", masked_number)(lambda args, m, a: torch.where(m, a, scalar_like(a, args["c"])))
operation("masked_fill", lambda r, pool: (lambda made: (made[0][::-1], made[1]))(masked_number(r, pool)))(
    lambda args, x, m: torch.where(m, scalar_like(x, args["c"]), x)
)
operation("masked_select", lambda r, pool: (lambda x: ([x, pool.new("bool", pool.shape(x))], {}))(pool.pick("float")))(
    lambda args, x, m: torch.masked_select(x, m)
)
operation("nonzero", one(("bool",), min_dim=1))(lambda args, x: torch.nonzero(x).contiguous())


# ---- products -------------------------------------------------------------------------------------------------------
def product(r, pool):
    a = pool.pick("float", min_dim=2, max_dim=3)
    shape = pool.shape(a)
    n = r.choice([0, 1, 2, 3, 5, 8, 17])
    b = [shape[-1], n] if len(shape) == 2 or r.random() < 0.4 else [shape[0], shape[-1], n]
    if len(shape) == 2 and r.random() < 0.2:
        b = [r.choice([1, 2, 3])] + b
    return [a, pool.pick_shape(pool.dtype(a), b)], {}


operation("matmul", product)(lambda args, a, b: torch.matmul(a, b))


def linear_of(r, pool):
    x = pool.pick("float", min_dim=1)
    out, size = r.choice([1, 2, 3, 5, 8, 16, 33]), pool.shape(x)[-1]
    kind = pool.weight_dtype(x, r)
    inputs = [x, pool.new(kind, [out, size], parameter=True)]
    return inputs + ([pool.new(kind, [out], parameter=True)] if r.random() < 0.6 else []), {}


def same(x, *weights):
    """Rounds float32 weights to x's dtype, because PyTorch's functions take one dtype."""
    return [w.to(x.dtype) for w in weights]


operation("linear", linear_of)(lambda args, x, *weights: F.linear(x, *same(x, *weights)))


def einsum_of(r, pool):
    a = pool.pick("float", min_dim=1, max_dim=3)
    letters = "ijk"[: len(pool.shape(a))]
    sizes = dict(zip(letters, pool.shape(a)))
    other = r.sample(letters, r.randint(0, len(letters))) + (["n"] if r.random() < 0.6 else [])
    r.shuffle(other)
    sizes["n"] = r.choice([1, 2, 5])
    out = r.sample(sorted(set(letters) | set(other)), r.randint(0, len(set(letters) | set(other))))
    b = pool.pick_shape(pool.dtype(a), [sizes[letter] for letter in other])
    return [a, b], {"equation": f"{letters},{''.join(other)}->{''.join(out)}"}


operation("einsum", einsum_of)(lambda args, a, b: torch.einsum(args["equation"], a, b))


# ---- in place: functions of the value before, that give the value after ---------------------------------------------
def write(name, make, function):
    REFERENCE[name], MAKE[name] = function, make


def into(kinds=("float", "whole")):
    def make(r, pool):
        x = pool.target(r.choice(kinds))
        return x and ([x, pool.like_broadcast(x, smaller=True)], {})

    return make


def into_number(kinds=("float", "whole"), choices=None):
    def make(r, pool):
        x = pool.target(r.choice(kinds))
        return x and ([x], {"c": r.choice(choices) if choices else pool.number_for(x)})

    return make


write("add_", into(), lambda args, x, y: x + y)
write("sub_", into(), lambda args, x, y: x - y)
write("mul_", into(), lambda args, x, y: x * y)
write("div_", into(("float",)), lambda args, x, y: x / y)
write("add_number_", into_number(), lambda args, x: x + args["c"])
write("sub_number_", into_number(), lambda args, x: x - args["c"])
write("mul_number_", into_number(), lambda args, x: x * args["c"])
write("div_number_", into_number(("float",), [2.0, 3.0, -0.7]), lambda args, x: x / args["c"])
write("fill_", into_number(), lambda args, x: torch.full_like(x, args["c"]))
write("copy_", into(), lambda args, x, y: y.expand_as(x).clone())


def add_alpha(r, pool):
    made = into()(r, pool)
    return made and (made[0], {"c": 2 if pool.is_whole(made[0][0]) else r.choice([2.0, 0.3, -1.0])})


write("add_alpha_", add_alpha, lambda args, x, y: x + args["c"] * y)


def clamp_into(r, pool):
    x = pool.target("float")
    return x and ([x], {"low": -1.0, "high": r.choice([0.0, 0.5, 2.0])})


write("clamp_", clamp_into, REFERENCE["clamp"])


def fill_into(r, pool):
    x = pool.target(r.choice(("float", "whole")))
    return x and ([x, pool.new("bool", pool.shape(x))], {"c": pool.number_for(x)})


write("masked_fill_", fill_into, lambda args, x, m: torch.where(m, scalar_like(x, args["c"]), x))


def put_into(r, pool):
    x = pool.target("float")
    if not x or not pool.shape(x) or 0 in pool.shape(x):
        return None
    inputs, args = pool.places(x, unique=True)
    accumulate = r.random() < 0.4
    size = list(REFERENCE["index"](args, pool.tensor(x), *map(pool.tensor, inputs)).shape)
    return [x, pool.new(pool.dtype(x), size), *inputs], {**args, "accumulate": accumulate}


def brackets(args, tensors):
    tensors = iter(tensors)
    return tuple(
        slice(*place)
        if isinstance(place, list)
        else ... if place == "..." else next(tensors) if place == "tensor" else place
        for place in args["at"]
    )


def put(args, x, values, *tensors):
    y = x.clone()
    if args["accumulate"]:
        places = torch.arange(x.numel()).reshape(x.shape)[brackets(args, tensors)]
        return y.flatten().index_add(0, places.flatten(), values.expand(places.shape).flatten()).reshape(x.shape)
    y[brackets(args, tensors)] = values
    return y


write("index_put_", put_into, put)

import layers  # noqa: E402, F401: they add theirs
import reductions  # noqa: E402, F401
import views  # noqa: E402, F401
