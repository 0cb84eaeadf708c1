"""Random numbers that are functions of (seed, example, epoch, purpose), in any order.

All functions take NumPy arrays or tensors, and return the same.
"""

from __future__ import annotations

import numpy as np

from orbit_runner.data.order.arrays import Array, namespace_of

# The purposes of draws, which are independent of each other. First, the order of examples: within
# an epoch; of blocks of records, and within a window of records; of batches of sentence pairs, and
# within a bucket of pairs.
EXAMPLES = 0x6F72646572
BLOCKS = 0x626C6F636B
WINDOWS = 0x77696E646F77
BATCHES = 0x6261746368
PAIRS = 0x70616972
# Mixtures: the positions of a block, and the examples of a group in one of its passes.
MIXTURE = 0x6D697874757265
PASSES = 0x706173736573
# The augmentation of images.
CROP_FLIP = 0x63726F70
AREA_CROP = 0x696E636570
FLIP = 0x666C6970
JITTER = 0x6A6974746572
ERASING = 0x6572617365
# Mixup and CutMix: whether an image is mixed, whether by CutMix, its share, and the rectangle.
MIXED = 0x6D697831
CUT = 0x6D697832
SHARE = 0x6D697833
ROW = 0x6D697834
COLUMN = 0x6D697835
# Items that a user has not chosen, in training.
NEGATIVES = 0x6E656761746976

GOLDEN = 0x9E3779B97F4A7C15
MULTIPLIERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def mix(values: Array) -> Array:
    """Returns the 64 bits of each value, mixed by a one-to-one function: uint64, the same shape.

    Each bit of the result depends on each bit of the input. This is the finalizer of SplitMix64
    (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014, figure 16)
    with the constants of its reference implementation.
    """
    xp = namespace_of(values)
    for shift, multiplier in MULTIPLIERS:
        values = xp.bitwise_xor(values, xp.right_shift(values, shift)) * np.uint64(multiplier)
    return xp.bitwise_xor(values, xp.right_shift(values, 31))


def random_bits(seed: int, ids: Array, epochs: Array, salt: int) -> Array:
    """Returns 64 random bits per example: uint64, the shape to which ids and epochs broadcast.

    The seed is taken modulo 2^64. `ids` are indices of examples; they and `epochs` are int64
    arrays, or integers. Draws with different salts are independent.
    """
    state = np.uint64(seed % 2**64)
    with np.errstate(over="ignore"):  # NumPy warns if a scalar overflows.
        for part in (salt, epochs, ids):
            xp = namespace_of(state, part)
            state = mix(xp.bitwise_xor(state, xp.uint64(part)) + np.uint64(GOLDEN))
    return state


def random_uniform_int(seed: int, ids: Array, epochs: Array, salt: int, maxval: int) -> Array:
    """Returns a uniform integer from 0 to `maxval` - 1 per example: int64.

    `maxval` must be at most 2^31. The other arguments are those of `random_bits`.
    """
    bits = random_bits(seed, ids, epochs, salt)
    return namespace_of(bits).int64(scale(bits, np.uint64(maxval)))


def scale(bits: Array, maxval: Array) -> Array:
    """Returns uniform integers from 0 to `maxval` - 1: uint64, the shape of `bits`.

    Only the upper half of each value of `bits`, uint64, is used. `maxval`, uint64, must be at most
    2^31, and broadcast to the shape of `bits`. The bias is below `maxval` / 2^32.
    """
    xp = namespace_of(bits, maxval)
    return xp.right_shift(xp.right_shift(bits, 32) * maxval, 32)
