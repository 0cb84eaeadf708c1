"""Random numbers that are functions of (seed, example, epoch, purpose), in any order."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from orbit_runner.data.sampling.numpy_random import GOLDEN, MULTIPLIERS


def mix(values: tf.Tensor) -> tf.Tensor:
    """Returns the 64 bits of each value, mixed by a one-to-one function: uint64, the same shape.

    Each bit of the result depends on each bit of the input. This is the finalizer of SplitMix64
    (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014, figure 16)
    with the constants of its reference implementation.
    """
    for shift, multiplier in MULTIPLIERS:
        values = _fold(values, shift) * uint64(multiplier)
    return _fold(values, 31)


def random_bits(seed: int, ids: tf.Tensor, epochs: tf.Tensor, salt: int) -> tf.Tensor:
    """Returns 64 random bits per example: uint64 [b].

    The seed is taken modulo 2^64. `ids`, int64 [b], are example indices; `epochs` is int64 [b] or a
    scalar. Draws with different salts are independent.
    """
    state = uint64(seed)
    for part in (uint64(salt), tf.cast(epochs, tf.uint64), tf.cast(ids, tf.uint64)):
        state = mix(tf.bitwise.bitwise_xor(state, part) + uint64(GOLDEN))
    return state


def random_uniform_int(
    seed: int, ids: tf.Tensor, epochs: tf.Tensor, salt: int, maxval: int
) -> tf.Tensor:
    """Returns a uniform integer from 0 to `maxval` - 1 per example: int64 [b].

    `maxval` must be at most 2^31. The other arguments are those of `random_bits`.
    """
    return tf.cast(scale(random_bits(seed, ids, epochs, salt), maxval), tf.int64)


def scale(bits: tf.Tensor, maxval: int | tf.Tensor) -> tf.Tensor:
    """Returns uniform integers from 0 to `maxval` - 1: uint64, the shape of `bits`.

    Only the upper half of each value of `bits`, uint64, is used. `maxval` must be at most 2^31; a
    tensor must be uint64 and broadcast to the shape of `bits`. The bias is below `maxval` / 2^32.
    """
    factor = uint64(maxval) if isinstance(maxval, int) else maxval
    upper = tf.bitwise.right_shift(bits, uint64(32))
    return tf.bitwise.right_shift(upper * factor, uint64(32))


def uint64(value: int) -> tf.Tensor:
    """Returns an integer modulo 2^64 as a uint64 scalar tensor."""
    return tf.constant(np.uint64(value % 2**64))


def _fold(values: tf.Tensor, shift: int) -> tf.Tensor:
    return tf.bitwise.bitwise_xor(values, tf.bitwise.right_shift(values, uint64(shift)))
