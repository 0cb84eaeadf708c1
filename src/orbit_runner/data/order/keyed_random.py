"""Random numbers that are functions of (seed, example, epoch, purpose), in any order.

All functions take NumPy arrays or tensors, and return the same.
"""

from __future__ import annotations

import numpy as np

from orbit_runner.data.order.arrays import Array, namespace_of

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


def random_bits(seed: int, ids: Array, epochs: Array, purpose: str) -> Array:
    """Returns 64 random bits per example: uint64, the shape to which ids and epochs broadcast.

    The seed is taken modulo 2^64. `ids` are indices of examples; they and `epochs` are int64
    arrays, or integers. Draws for different purposes are independent. A purpose is what is drawn,
    such as "order" or "flip", in at most eight ASCII characters.
    """
    salt = int.from_bytes(purpose.encode(), "big")
    state = np.uint64(seed % 2**64)
    with np.errstate(over="ignore"):  # NumPy warns if a scalar overflows.
        for part in (salt, epochs, ids):
            xp = namespace_of(state, part)
            state = mix(xp.bitwise_xor(state, xp.uint64(part)) + np.uint64(GOLDEN))
    return state


def random_uniform_int(seed: int, ids: Array, epochs: Array, purpose: str, maxval: int) -> Array:
    """Returns a uniform integer from 0 to `maxval` - 1 per example: int64.

    `maxval` must be at most 2^31. The other arguments are those of `random_bits`.
    """
    bits = random_bits(seed, ids, epochs, purpose)
    return namespace_of(bits).int64(scale(bits, np.uint64(maxval)))


def scale(bits: Array, maxval: Array) -> Array:
    """Returns uniform integers from 0 to `maxval` - 1: uint64, the shape of `bits`.

    Only the upper half of each value of `bits`, uint64, is used. `maxval`, uint64, must be at most
    2^31, and broadcast to the shape of `bits`. The bias is below `maxval` / 2^32.
    """
    xp = namespace_of(bits, maxval)
    return xp.right_shift(xp.right_shift(bits, 32) * maxval, 32)
