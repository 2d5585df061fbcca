#!/usr/bin/env python3
"""Random programs of tensors, run by ringgrad and checked by PyTorch, step by step.

    against_pytorch.py RANDOM_PROGRAMS [--seconds 60] [--first N | --seed N] [--only op,op] [--without op,op] [--keep-going]

RANDOM_PROGRAMS is the program of random_programs.cpp. Every step is checked alone: PyTorch computes it from
ringgrad's inputs of that step, in float64 and in the same dtype. It computes every gradient from ringgrad's gradients of
the step's results. So errors do not add up, and no rounding decides what a later ReLU lets through.

A value is right if it is as near to that of float64 as Note [Bounds] says, or equal to PyTorch's of the same dtype. A
failing program is made smaller, and printed with the command that repeats it. Exit status 77 (skipped) without torch.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

try:
    import torch
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

from generator import compute, from_json, make_program
from reductions import Rounded

# Note [Bounds]
# With the dtype's epsilon e, a result may differ from that of float64 by
#     4 · PyTorch's own difference + 2 · its largest of the tensor + 8 e |result| + 16 · spread
#     + 4 · the smallest number.
# (A chain of 256 products of like size is off by some 8 e. PyTorch's chains may be shorter.)
# PyTorch's own difference is unknown for float64, and if its own result overflows on the way while
# that of float64 does not. Then the bound is
#     32 e |result| + 64 · spread + 4 e · the largest result.
# The spread is the distance by which the float64 result moves when every input changes by a random
# part of e. It is the largest of 6 tries, or of 64 before a result is called wrong. Sums that
# cancel, 1/x near 0 and the like amplify these changes as they amplify rounding errors, and both
# grow with the root of a sum's length. Where Winograd's algorithms may be used, the spread is the
# largest of the tensor: their errors are as large as those of the largest pixels nearby.
# A spread of about e times the largest number tells of a sum whose terms are as large. Its parts may
# overflow although the sum does not: the order of adding decides. It may be infinite or NaN.
# No wider dtype says what is right where PyTorch's float64 overflows on the way and ours does not.
# A program with finite float64 numbers beyond 1e150 may so have a number where PyTorch has none.
TRIES = (6, 64)


class SameValue(torch.autograd.Function):
    """PyTorch's node, with ringgrad's value."""

    @staticmethod
    def forward(ctx, x, value, changed):
        ctx.dtype, ctx.changed = x.dtype, changed
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.changed(gradient).to(ctx.dtype), None, None


class Replay:
    """Computes the program with PyTorch from ringgrad's values, in float64 or in their dtypes."""

    def __init__(self, program, results, reference, change=None):
        self.program, self.results, self.reference, self.change = program, results, reference, change
        self.tensors, self.cuts, self.steps = {}, [], []
        for name, value in program["tensors"].items():
            self.tensors[name] = self.own(from_json(value)).requires_grad_(name in program["leaves"])
        self.leaves = {name: self.tensors[name] for name in program["leaves"]}

    def own(self, x):
        """Converts a value to this replay's dtype, and changes it slightly if asked."""
        if not x.is_floating_point():
            return x.clone()
        return self.changed(x.to(torch.float64) if self.reference else x.clone(), x.dtype)

    def changed(self, x, dtype, smallest=0):
        """Changes numbers by a part of their epsilon, and those that are not 0 by a part of `smallest`."""
        if self.change is None:
            return x
        part = torch.rand(x.shape, generator=self.change, dtype=torch.float64) * 2 - 1
        return x * (1 + torch.finfo(dtype).eps * part) + smallest * part * (x != 0)

    def run(self):
        for step, result in zip(self.program["steps"], self.results["steps"]):
            self.steps.append(self.step(step, result))
        return self

    def step(self, step, result):
        """Returns PyTorch's results by name."""
        inputs = [self.tensors[name] for name in step["in"]]
        ours = [from_json(value) for value in result["out"]]
        if "same" in result:  # no step at all, or one that was refused
            self.tensors[step["out"][0]] = inputs[0]
            return {}
        out = compute(step["op"], step["args"], inputs, self.program["tracked"] and not step.get("no_grad"))
        if self.reference:
            out = [x.double() if x.is_floating_point() else x for x in out]
        if len(out) != len(ours):
            return {"results": len(out)}
        if not self.program["tracked"]:
            return self.plain_step(step, result, inputs, out, ours)
        found = {}
        for name, x, value in zip(step["out"], out, ours):
            found[name] = x.detach()
            self.tensors[name] = self.continued(name, x, value)
        return found

    def continued(self, name, x, value):
        """Gives later steps ringgrad's value. Its history is PyTorch's, or ends at a capture."""
        if not x.requires_grad or x.shape != value.shape:
            return self.own(value)
        if name in self.program["captures"]:
            leaf = self.own(value).requires_grad_()
            self.cuts.append((name, x))
            self.leaves[name] = leaf
            return leaf
        info = torch.finfo(value.dtype)  # ringgrad rounds this gradient, to 0 if it is small
        return SameValue.apply(x, self.own(value), lambda gradient: self.changed(gradient, value.dtype, info.smallest_normal * info.eps))

    def plain_step(self, step, result, inputs, out, ours):
        """Without gradients, several tensors may share memory in both libraries."""
        if step["op"].endswith("_"):
            if inputs[0].shape != out[0].shape:
                return {}
            inputs[0].copy_(out[0])
            found = {name: self.tensors[name].clone() for name in result["written"] if name in self.tensors}
            values = {name: from_json(value) for name, value in result["written"].items()}
        else:
            self.tensors.update(zip(step["out"], out))
            found = {name: x.clone() for name, x in zip(step["out"], out)}
            values = dict(zip(step["out"], ours))
        for name, value in values.items():
            mine = self.tensors[name]
            if mine.shape == value.shape and not any(s > 1 and d == 0 for s, d in zip(mine.shape, mine.stride())):
                mine.copy_(self.own(value))
        return found

    def gradients(self, names, ours):
        """Returns the gradients of one pass from these roots, for which ringgrad had `ours`."""
        roots = [(self.tensors[name], self.own(from_json(self.program["cotangents"][name]))) for name in names]
        roots += [(x, self.own(from_json(ours[name]))) for name, x in self.cuts if ours.get(name)]
        roots = [(x, gradient.to(x.dtype)) for x, gradient in roots if x.requires_grad and x.shape == gradient.shape]
        for x in self.leaves.values():
            x.grad = None
        if roots:
            torch.autograd.backward([x for x, _ in roots], [gradient for _, gradient in roots], retain_graph=True)
        return {name: x.grad for name, x in self.leaves.items()}


def largest(x):
    return x.max() if x.numel() else 0


def has_far_numbers(program, results):
    """Returns True if products of the program's float64 numbers may overflow."""
    values = [*map(from_json, program["tensors"].values()), *ours_of(program, results).values()]
    wide = [x.abs() for x in values if x is not None and x.dtype == torch.float64]
    return any(bool((x.isfinite() & (x > 1e150)).any()) for x in wide)


def difference(ours, reference, native, spread, far):
    """Describes the first wrong element; returns "" if there is none."""
    if ours.shape != reference.shape:
        return f"shape {list(ours.shape)}, PyTorch {list(reference.shape)}"
    if native.dtype != ours.dtype:
        return f"dtype {ours.dtype}, PyTorch {native.dtype}"
    if not ours.is_floating_point():
        bad = ours != native
    else:
        info = torch.finfo(ours.dtype)
        o, ref, own = ours.double(), reference.double(), native.double()
        theirs = (own - ref).abs().nan_to_num(0, 0, 0)
        few, rest = 8, 0
        if ours.dtype == torch.float64 or bool((ref.isfinite() & ~own.isfinite()).any()):
            few, rest = 32, 4 * info.eps * largest(ref.abs().nan_to_num(0, 0, 0))
        tolerance = rest + 4 * theirs + 2 * largest(theirs) + few * info.eps * ref.abs() + 2 * few * spread.nan_to_num(float("inf")) + 4 * info.smallest_normal * info.eps
        good = ((o - ref).abs() <= tolerance) | (o == ref) | (o.isnan() & ref.isnan())
        good |= (o == own) | ~(o.isfinite() | own.isfinite())
        good |= o.isinf() & (o.sign() == ref.sign()) & (ref.abs() + tolerance >= info.max)
        good |= ref.isinf() & (o.sign() == ref.sign()) & (o.abs() >= info.max * (1 - 8 * info.eps))
        good |= ~o.isfinite() & ref.isfinite() & (ref.abs() + 4 * spread / info.eps >= info.max)
        if ours.dtype == torch.bfloat16:  # AVX512_BF16 converts what is subnormal to 0
            good |= (o == 0) & (ref.abs() < info.smallest_normal)
        good |= o.isfinite() & ~ref.isfinite() & (far and ours.dtype == torch.float64)
        bad = ~good
    if not bool(bad.any()):
        return ""
    place = int(bad.flatten().int().argmax())
    values = [x.flatten()[place].item() for x in (ours, reference, native)]
    return f"{int(bad.sum())} of {bad.numel()}, at {place}: {values[0]!r}, float64 {values[1]!r}, PyTorch {values[2]!r}"


def values_of(program, results, reference, change=None):
    """Returns all results of PyTorch: {what: tensor}."""
    Rounded.change = change
    replay = Replay(program, results, reference, change).run()
    found = {(i, name): x for i, step in enumerate(replay.steps) for name, x in step.items()}
    for i, ours in enumerate(results.get("gradients") or []):
        names = program["roots"][i : i + 1] if program["way"] == "backward" else program["roots"]
        found.update({(f"gradient {i}", name): x for name, x in replay.gradients(names, ours).items()})
    return found


def ours_of(program, results):
    found = {}
    for i, (step, result) in enumerate(zip(program["steps"], results["steps"])):
        if "same" not in result:
            found.update({(i, name): value for name, value in zip(step["out"], result["out"])})
            found.update({(i, name): value for name, value in (result.get("written") or {}).items()})
    for i, gradients in enumerate(results.get("gradients") or []):
        found.update({(f"gradient {i}", name): value for name, value in gradients.items()})
    return {what: from_json(value) for what, value in found.items()}


def wrong_values(program, results, digits=None):
    """Returns what is wrong: (what, text)."""
    reference, native = values_of(program, results, True), values_of(program, results, False)
    ours = ours_of(program, results)
    spread = {}
    far = has_far_numbers(program, results)
    winograd = not program["direct"] and any("conv" in step["op"] for step in program["steps"])
    for tries in (0, *TRIES):
        for i in range(tries):
            change = torch.Generator().manual_seed(i)
            for what, x in values_of(program, results, True, change).items():
                if x is not None and x.is_floating_point() and x.shape == reference[what].shape:
                    moved = (x - reference[what]).abs()
                    spread[what] = torch.maximum(spread.get(what, moved), moved)
        wrong = []
        for what, x in ours.items():
            theirs, own = reference.get(what), native.get(what)
            if x is None or theirs is None:  # None is a gradient of zeros
                rest = x if theirs is None else theirs
                if rest is not None and bool((rest != 0).any()):
                    wrong.append((what, f"{'no gradient' if x is None else 'a gradient'}, PyTorch {rest.flatten()[:4].tolist()}"))
                continue
            moved = spread.get(what, torch.zeros(()))
            text = difference(x, theirs, own, 4 * largest(moved) + 0 * moved if winograd else moved, far)
            if text:
                wrong.append((what, text))
        if not wrong:
            break
    if digits is not None:
        note_digits(program, ours, reference, native, digits)
    return wrong


def note_digits(program, ours, reference, native, digits):
    """Collects, for each operation, the ratio of ringgrad's error to PyTorch's."""
    for (i, name), x in ours.items():
        ref, own = reference.get((i, name)), native.get((i, name))
        if isinstance(i, str) or x is None or not x.is_floating_point() or x.shape != ref.shape or x.numel() < 16:
            continue
        errors = [float((y.double() - ref).norm()) for y in (x, own)]
        if all(0 < error < float("inf") for error in errors):
            digits.setdefault((program["steps"][i]["op"], str(x.dtype)[6:]), []).append(errors[0] / errors[1])


class Runner:
    """Runs the program of random_programs.cpp, and starts it again if it has ended."""

    def __init__(self, path):
        self.path, self.process = path, None

    def run(self, program):
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen([self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.process.stdin.write(json.dumps(program) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            return {"steps": [], "died": self.process.wait()}
        return json.loads(line)


def failures(program, runner, digits=None):
    """Returns what is wrong with ringgrad's results, and the results."""
    results = runner.run(program)
    if "died" in results:
        return [(("process", ""), f"the process ended with {results['died']}")], results
    wrong = wrong_values(program, results, digits)
    if "error" in results and not any("refused" in result for result in results["steps"]):  # else of another value
        wrong.append(((len(results["steps"]), ""), "an error: " + results["error"]))
    for name, value in results.get("final", {}).items():
        last = [v for s, r in zip(program["steps"], results["steps"]) for n, v in zip(s["out"], r["out"]) if n == name]
        if program["tracked"] and last and last[-1] != value:
            wrong.append((("final", name), f"{name} has changed after its step"))
    return wrong, results


def without_step(program, results, i):
    """Returns the program with this step's results as inputs, or None if they are written to."""
    step, result = program["steps"][i], results["steps"][i]
    written = {later["in"][0] for later in program["steps"] if later["op"].endswith("_")}
    if step["op"].endswith("_") or written & set(step["out"]):
        return None
    smaller = {**program, "steps": program["steps"][:i] + program["steps"][i + 1 :]}
    smaller["tensors"] = {**program["tensors"], **dict(zip(step["out"], result["out"]))}
    floating = [n for n, v in zip(step["out"], result["out"]) if "float" in v["dtype"]]
    smaller["leaves"] = program["leaves"] + (floating if program["leaves"] else [])
    smaller["captures"] = {n: way for n, way in program["captures"].items() if n not in step["out"]}
    smaller["roots"] = [n for n in program["roots"] if n not in step["out"]]
    used = {n for s in smaller["steps"] for n in s["in"]}
    smaller["tensors"] = {n: v for n, v in smaller["tensors"].items() if n in used}
    smaller["leaves"] = [n for n in smaller["leaves"] if n in used]
    return smaller


def shrink(program, runner):
    """Replaces steps by their results, one after the other, where an error remains without them."""
    i = len(program["steps"]) - 1
    while i >= 0:
        results = runner.run(program)
        if i < len(results["steps"]):
            smaller = without_step(program, results, i)
            if smaller and smaller["steps"] and failures(smaller, runner)[0]:
                program = smaller
        elif i > len(results["steps"]):  # never reached
            smaller = {**program, "steps": program["steps"][:i], "roots": [], "captures": {}}
            if failures(smaller, runner)[0]:
                program = smaller
        i -= 1
    return program


def show(program):
    """Returns the program as readable text."""
    lines = []
    for name, value in program["tensors"].items():
        x = from_json(value)
        text = str(x.tolist()) if x.numel() <= 12 else f"{x.flatten()[:6].tolist()} …"
        lines.append(f"  {name} = {value['dtype']} {value['shape']} {text}{' leaf' if name in program['leaves'] else ''}")
    for step in program["steps"]:
        more = " (no_grad)" if step.get("no_grad") else ""
        lines.append(f"  {', '.join(step['out'])} = {step['op']}({', '.join(step['in'])}) {step['args'] or ''}{more}")
    if program["roots"]:
        lines.append(f"  {program['way']} from {program['roots']}, captures {program['captures']}")
    return "\n".join(lines)


def place_of(program, what):
    if isinstance(what[0], int) and what[0] < len(program["steps"]):
        return f"{program['steps'][what[0]]['op']} {what[1]}"
    return " ".join(map(str, what))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, help="this program alone")
    parser.add_argument("--first", type=int, help="the seed of the first program; else another one each time")
    parser.add_argument("--only", default="", help="operations, with commas between")
    parser.add_argument("--without", default="")
    parser.add_argument("--keep-going", action="store_true", help="after what is wrong, too")
    parser.add_argument("--digits", action="store_true", help="operations whose errors are twice PyTorch's")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    runner, digits = Runner(options.program), {} if options.digits else None
    without, only = ([name for name in text.split(",") if name] for text in (options.without, options.only))
    first = next((seed for seed in (options.seed, options.first) if seed is not None), int.from_bytes(os.urandom(4), "little"))
    choice = "".join(f" --{k} {v}" for k, v in (("only", options.only), ("without", options.without)) if v)
    end, seed, failed, refused, steps = time.monotonic() + options.seconds, first, 0, 0, 0
    while seed == first if options.seed is not None else time.monotonic() < end:
        program = make_program(seed, without, only)
        wrong, results = failures(program, runner, digits)
        steps += len(results["steps"])
        refused += sum(1 for result in results["steps"] if result.get("refused"))
        if wrong:
            failed += 1
            small = shrink(program, runner)
            print(f"WRONG {program['seed']}: against_pytorch.py {options.program} --seed {program['seed']}{choice}")
            for what, text in failures(small, runner)[0] or wrong:
                print(f"  {place_of(small, what)}: {text}")
            print(show(small), flush=True)
            if not options.keep_going:
                break
        seed += 1
    for (op, dtype), ratios in sorted((digits or {}).items()):
        if len(ratios) >= 3 and statistics.median(ratios) > 2:
            print(f"digits: {op} {dtype}: {statistics.median(ratios):.1f} times PyTorch's error in {len(ratios)} results")
    print(f"{seed - first} programs from seed {first} on, {steps} steps, {refused} refused in place, {failed} wrong")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
