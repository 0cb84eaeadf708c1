"""Draws without replacement from as many sets of different sizes as there are rows."""

from __future__ import annotations

import tensorflow as tf

from orbit_runner.data.keyed_random import mix, uint64
from orbit_runner.data.ratings.negatives import scale_each

_ROUNDS = 8
_ROUND_STEP = 0x9E3779B97F4A7C15


def distinct(sizes: tf.Tensor, keys: tf.Tensor, count: int) -> tf.Tensor:
    """Draws numbers without replacement.

    The first places of a keyed permutation, as in `data/permutation.py`, whose domain here is a
    square just large enough for each row.

    Args:
        sizes: Draw from 0 to this - 1, int64 [b], at least 1.
        keys: What the draws of each row are keyed by, uint64 [b], hashed beforehand.
        count: How many to draw, m.

    Returns:
        int64 [b, m]; where a size is below `count`, its row ends with numbers not below the size.
    """
    limits = tf.cast(sizes, tf.uint64)[:, tf.newaxis]
    sides = tf.cast(tf.math.ceil(tf.sqrt(tf.cast(sizes, tf.float64))), tf.uint64)[:, tf.newaxis]
    places = tf.range(count, dtype=tf.int64)[tf.newaxis]
    values = tf.cast(places + tf.zeros_like(sizes)[:, tf.newaxis], tf.uint64)
    inside = values < limits

    def walks(found: tf.Tensor) -> tf.Tensor:
        return tf.reduce_any(inside & (found >= limits))

    def walk(found: tf.Tensor) -> list[tf.Tensor]:
        return [tf.where(found >= limits, _network(found, sides, keys), found)]

    start = _network(values, sides, keys)
    (found,) = tf.while_loop(walks, walk, [start])
    return tf.cast(tf.where(inside, found, values), tf.int64)


def _network(values: tf.Tensor, sides: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    left = values // sides
    right = values - left * sides
    for number in range(_ROUNDS):
        key = keys[:, tf.newaxis] + uint64(number * _ROUND_STEP)
        total = left + scale_each(mix(tf.bitwise.bitwise_xor(right, key)), sides)
        left, right = right, tf.where(total >= sides, total - sides, total)
    return left * sides + right
