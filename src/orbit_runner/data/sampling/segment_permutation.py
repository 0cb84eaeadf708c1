"""A keyed permutation of each of many segments, read at any places at once."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from orbit_runner.data.sampling.permutation import walk_cycles
from orbit_runner.data.table import on_cpu


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
        return walk_cycles(tf.cast(places, tf.uint64), sizes, lefts, rights, keys)
