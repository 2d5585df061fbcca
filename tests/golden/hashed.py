"""Weights and inputs that C++ and Python make alike, without a file: element i of the tensor NAME is a hash of both.

The twin of tests/golden/hashed_weights.h, which tells the formulas; tests/golden/hashed_weights_test.cpp holds values from here.
"""

import numpy as np


def fnv1a64(name):
    """FNV-1a, 64 bits, of the name's UTF-8 bytes."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def bits(name, count):
    """SplitMix64 (Steele et al. 2014) of fnv1a64(name) + i, for i = 0 … count-1."""
    with np.errstate(over="ignore"):
        z = np.arange(count, dtype=np.uint64) + np.uint64(fnv1a64(name)) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def uniform(name, shape):
    """float64 in [-1, 1), multiples of 2^-52."""
    u = (bits(name, int(np.prod(shape))) >> np.uint64(11)).astype(np.float64)
    return (u * 2.0**-52 - 1.0).reshape(shape)


def labels(count, classes):
    return (bits("labels", count) % np.uint64(classes)).astype(np.int64)


def state(name, shape, steady):
    """The entry NAME of a state_dict. See Note [Mixed and steady weights] in tests/hashed_weights.h."""
    if name.endswith("num_batches_tracked"):
        return np.zeros(shape, np.int64)
    u = uniform(name, shape)
    if name.endswith("running_mean"):
        return 0.1 * u
    if name.endswith("running_var"):
        return 1.0 + 0.5 * u
    if len(shape) >= 2:
        return np.sqrt(6.0 / np.prod(shape[1:])) * u  # Kaiming uniform for ReLU (He et al. 2015)

    inner = "bn1." in name
    outer = any(part in name for part in ("bn2.", "bn3.", "downsample.1."))
    if name.endswith("bias"):
        if steady and inner:
            return np.copysign(1.0 + u / 16, u)
        return 0.12 * (1.0 + u / 16) if steady and outer else 0.1 * u
    if steady and (inner or outer):
        return (0.25 if inner else 0.03) * (1.0 + u / 16)
    return (0.25 if outer else 1.0) * (1.0 + u / 8)
