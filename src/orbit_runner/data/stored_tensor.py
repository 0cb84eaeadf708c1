"""Reads rows of an in-memory array that is stored once for any number of pipelines."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from orbit_runner.data.arrays import Gathered, stored_rows


def stored_tensor(array: np.ndarray) -> tf.Tensor:
    """Returns an eager tensor in host memory, for graphs to capture.

    A captured tensor is passed by reference. A constant would be part of each function's graph,
    which is limited to 2 GB.
    """
    with tf.init_scope(), tf.device("/CPU:0"):
        return tf.constant(array)


def row_finder(array: np.ndarray | Gathered) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns the function from the numbers of rows to their places in `stored_rows(array)`.

    Both are int64 [b].
    """
    if not isinstance(array, Gathered):
        return lambda ids: ids
    codes = stored_tensor(array.codes)
    return lambda ids: tf.cast(tf.gather(codes, ids), tf.int64)


class Table:
    """The rows of an array [n, ...]."""

    def __init__(self, array: np.ndarray | Gathered) -> None:
        self._rows = stored_tensor(stored_rows(array))
        self._find = row_finder(array)

    def __call__(self, ids: tf.Tensor, epochs: tf.Tensor) -> tf.Tensor:
        """Returns the rows `ids` (int64 [b]), [b, ...] in the array's dtype; ignores `epochs`."""
        del epochs
        return tf.gather(self._rows, self._find(ids))


class SortedTable:
    """Values in ascending order, [n], among which others are searched."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = stored_tensor(values)

    def count_at_most(self, limits: tf.Tensor) -> tf.Tensor:
        """Returns how many values are at most each of `limits` ([b] in their dtype), int64 [b]."""
        # As one row, because that is faster than the same search without rows.
        rows = self._values[tf.newaxis], limits[tf.newaxis]
        return tf.searchsorted(*rows, side="right", out_type=tf.int64)[0]
