"""Data sets of noise, for tests that train for a few steps."""

import random, struct


def write_idx(folder, split, images):
    """So many images of noise in MNIST's files."""
    noise = random.Random(images)
    header = struct.pack(">IIII", 0x803, images, 28, 28)
    (folder / f"{split}-images-idx3-ubyte").write_bytes(header + noise.randbytes(images * 28 * 28))
    labels = bytes(i % 10 for i in range(images))
    (folder / f"{split}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, images) + labels)
