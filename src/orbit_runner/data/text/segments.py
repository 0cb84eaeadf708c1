"""A keyed permutation of each of many segments, read at any places at once."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from orbit_runner.data.keyed_random import mix, uint64
from orbit_runner.data.table import on_cpu

_ROUNDS = 8
_ROUND_STEP = 0x9E3779B97F4A7C15


class SegmentPermutation:
    """What `permutation.permute` is for one size, for sizes that differ from place to place."""

    def __init__(self, sizes: np.ndarray) -> None:
        """Splits each size into two factors.

        Args:
            sizes: The number of places of each segment, int64 [k].
        """
        roots = np.ceil(np.sqrt(np.maximum(sizes, 1))).astype(np.int64)
        # An odd product would leave out the odd permutations, each round being an even one.
        lefts = roots + roots % 2
        rights = np.maximum(1, -(-sizes // lefts))
        self._columns = [on_cpu(column.astype(np.uint64)) for column in (sizes, lefts, rights)]

    def __call__(self, places: tf.Tensor, segments: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        """Looks up places.

        Args:
            places: int64 [b], each 0 to the size of its segment less 1.
            segments: Which segment each is in, int64 [b].
            keys: Which permutation to read, uint64 [b], hashed beforehand; the same for all places
                of a segment.

        Returns:
            int64 [b], one to one in the places of each segment.
        """
        sizes, lefts, rights = (tf.gather(column, segments) for column in self._columns)
        # Walks on until the value is in the segment, as `permutation.permute` does.
        (values,) = tf.while_loop(
            lambda x: tf.reduce_any(x >= sizes),
            lambda x: [tf.where(x >= sizes, _network(x, lefts, rights, keys), x)],
            [_network(tf.cast(places, tf.uint64), lefts, rights, keys)],
        )
        return tf.cast(values, tf.int64)


def _network(values: tf.Tensor, lefts: tf.Tensor, rights: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    left = values // rights
    right = values - left * rights
    for number in range(_ROUNDS):
        key = keys + uint64(number * _ROUND_STEP)
        if number % 2:
            right = _add(right, mix(tf.bitwise.bitwise_xor(left, key)), rights)
        else:
            left = _add(left, mix(tf.bitwise.bitwise_xor(right, key)), lefts)
    return left * rights + right


def _add(values: tf.Tensor, bits: tf.Tensor, modulus: tf.Tensor) -> tf.Tensor:
    half = uint64(32)
    total = values + tf.bitwise.right_shift(tf.bitwise.right_shift(bits, half) * modulus, half)
    return tf.where(total >= modulus, total - modulus, total)
