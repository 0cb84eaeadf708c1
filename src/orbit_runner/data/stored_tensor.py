"""Reads rows of an in-memory array that is stored once for any number of pipelines."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from orbit_runner.data.arrays import RepeatedArray, TextArray, stored_rows


def stored_tensor(array: np.ndarray) -> tf.Tensor:
    """Returns an eager tensor in host memory, for graphs to capture.

    A captured tensor is passed by reference. A constant would be part of each function's graph,
    which is limited to 2 GB.
    """
    with tf.init_scope(), tf.device("/CPU:0"):
        return tf.constant(array)


class Table:
    """The rows of an array [n, ...]."""

    def __init__(self, array: np.ndarray | RepeatedArray | TextArray) -> None:
        rows = stored_rows(array)
        self._texts = None
        if isinstance(array, TextArray):
            self._texts = stored_tensor(np.array(array.texts, object))
        self._repeats = len(rows) < len(array)
        self._stored = len(rows)
        self._rows = stored_tensor(rows)

    def __call__(self, ids: tf.Tensor, epochs: tf.Tensor) -> tf.Tensor:
        """Returns the rows `ids` (int64 [b]), [b, ...] in the array's dtype; ignores `epochs`."""
        del epochs
        rows = tf.gather(self._rows, ids % self._stored if self._repeats else ids)
        if self._texts is not None:
            return tf.gather(self._texts, rows)
        return rows


class SortedTable:
    """Values in ascending order, [n], among which others are searched."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = stored_tensor(values)

    def count_at_most(self, wanted: tf.Tensor) -> tf.Tensor:
        """Returns how many values are at most each of `wanted` ([b] in their dtype), int64 [b]."""
        # As one row, because that is faster than the same search without rows.
        rows = self._values[tf.newaxis], wanted[tf.newaxis]
        return tf.searchsorted(*rows, side="right", out_type=tf.int64)[0]
