"""Samples without replacement from many ranges of different sizes at once."""

from __future__ import annotations

import tensorflow as tf

from orbit_runner.data.order.permutation import walk_cycles


def draw_distinct(sizes: tf.Tensor, keys: tf.Tensor, count: int) -> tf.Tensor:
    """Returns `count` different integers per row, each from 0 to size - 1: int64 [b, count].

    `sizes`, int64 [b], must be at least 1. `keys`, uint64 [b], must already be hashed. If a size is
    below `count`, its row ends with values that are not below the size.
    """
    limits = tf.cast(sizes, tf.uint64)[:, tf.newaxis]
    # The smallest square that is not below the size.
    sides = tf.cast(tf.math.ceil(tf.sqrt(tf.cast(sizes, tf.float64))), tf.uint64)[:, tf.newaxis]
    places = tf.range(count, dtype=tf.int64)[tf.newaxis] + tf.zeros_like(sizes)[:, tf.newaxis]
    return walk_cycles(tf.cast(places, tf.uint64), limits, sides, sides, keys[:, tf.newaxis])
