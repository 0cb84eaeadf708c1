"""Draws without replacement from as many sets of different sizes as there are rows."""

from __future__ import annotations

import tensorflow as tf

from orbit_runner.data.sampling.permutation import walk_cycles


def distinct(sizes: tf.Tensor, keys: tf.Tensor, count: int) -> tf.Tensor:
    """Draws numbers without replacement: the first places of a keyed permutation.

    Args:
        sizes: Draw from 0 to this - 1, int64 [b], at least 1.
        keys: What the draws of each row are keyed by, uint64 [b], hashed beforehand.
        count: How many to draw, m.

    Returns:
        int64 [b, m]; where a size is below `count`, its row ends with numbers not below the size.
    """
    limits = tf.cast(sizes, tf.uint64)[:, tf.newaxis]
    # A square just large enough.
    sides = tf.cast(tf.math.ceil(tf.sqrt(tf.cast(sizes, tf.float64))), tf.uint64)[:, tf.newaxis]
    places = tf.range(count, dtype=tf.int64)[tf.newaxis] + tf.zeros_like(sizes)[:, tf.newaxis]
    return walk_cycles(tf.cast(places, tf.uint64), limits, sides, sides, keys[:, tf.newaxis])
