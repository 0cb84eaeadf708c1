"""A keyed permutation of each of many segments, which can be evaluated at any places at once."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from orbit_runner.data.sampling.numpy_permutation import segment_factors
from orbit_runner.data.sampling.permutation import walk_cycles
from orbit_runner.data.table import stored_tensor


class SegmentPermutation:
    """Permutes the places within segments of different sizes, like `permute` for a single size.

    `sizes`, int64 [k], are the numbers of places of the segments.
    """

    def __init__(self, sizes: np.ndarray) -> None:
        columns = sizes, *segment_factors(sizes)
        self._columns = [stored_tensor(column.astype(np.uint64)) for column in columns]

    def __call__(self, places: tf.Tensor, segments: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        """Returns the permuted places: int64 [b], one to one within each segment.

        `places`, int64 [b], count from 0 in each segment; `segments`, int64 [b], are the segments
        they are in. `keys`, uint64 [b], select the permutation. They must already be hashed, and
        must be the same for all places of a segment.
        """
        sizes, lefts, rights = (tf.gather(column, segments) for column in self._columns)
        return walk_cycles(tf.cast(places, tf.uint64), sizes, lefts, rights, keys)
