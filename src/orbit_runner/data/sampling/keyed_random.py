"""Random numbers that are functions of (seed, example, epoch, purpose), drawn in any order."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

_GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLIERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def mix(values: tf.Tensor) -> tf.Tensor:
    """Scrambles 64 bits one to one, each bit of the result depending on each of the input.

    The finalizer of SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number
    Generators, OOPSLA 2014, figure 16) in the constants of its reference implementation.

    Args:
        values: uint64, any shape.

    Returns:
        uint64, the same shape.
    """
    for shift, multiplier in _MULTIPLIERS:
        values = _fold(values, shift) * uint64(multiplier)
    return _fold(values, 31)


def random_bits(seed: int, ids: tf.Tensor, epochs: tf.Tensor, salt: int) -> tf.Tensor:
    """Draws 64 random bits a key.

    Args:
        seed: Any integer; counts modulo 2^64.
        ids: Numbers of the examples, int64 [b].
        epochs: Epoch of each, int64 [b] or scalar.
        salt: What the bits are for; draws with different salts are independent.

    Returns:
        uint64 [b].
    """
    state = uint64(seed)
    for part in (uint64(salt), tf.cast(epochs, tf.uint64), tf.cast(ids, tf.uint64)):
        state = mix(tf.bitwise.bitwise_xor(state, part) + uint64(_GOLDEN))
    return state


def random_uniform_int(
    seed: int, ids: tf.Tensor, epochs: tf.Tensor, salt: int, maxval: int
) -> tf.Tensor:
    """Draws a uniform integer a key.

    Args:
        seed: Any integer; counts modulo 2^64.
        ids: Numbers of the examples, int64 [b].
        epochs: Epoch of each, int64 [b] or scalar.
        salt: What the number is for.
        maxval: One more than the largest, at most 2^31.

    Returns:
        int64 [b] of 0 to `maxval` - 1.
    """
    return tf.cast(scale(random_bits(seed, ids, epochs, salt), maxval), tf.int64)


def scale(bits: tf.Tensor, maxval: int | tf.Tensor) -> tf.Tensor:
    """Turns random bits into a uniform integer, with a bias below `maxval` / 2^32.

    Args:
        bits: uint64, any shape; the upper half counts.
        maxval: One more than the largest, at most 2^31; or uint64 of a shape that broadcasts.

    Returns:
        uint64, the same shape, of 0 to `maxval` - 1.
    """
    factor = uint64(maxval) if isinstance(maxval, int) else maxval
    upper = tf.bitwise.right_shift(bits, uint64(32))
    return tf.bitwise.right_shift(upper * factor, uint64(32))


def uint64(value: int) -> tf.Tensor:
    """Makes a constant of an integer modulo 2^64.

    Args:
        value: Any integer.

    Returns:
        uint64 scalar.
    """
    return tf.constant(np.uint64(value % 2**64))


def _fold(values: tf.Tensor, shift: int) -> tf.Tensor:
    return tf.bitwise.bitwise_xor(values, tf.bitwise.right_shift(values, uint64(shift)))
