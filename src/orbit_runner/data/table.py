"""Reads rows of an in-memory array that is stored once for any number of pipelines."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from orbit_runner.data.source import RepeatedArray, stored_rows


def host_tensor(array: np.ndarray) -> tf.Tensor:
    """Returns an eager tensor in host memory, for tf.data functions to capture.

    A captured tensor is passed by reference. A constant would be part of each function's graph,
    which is limited to 2 GB.
    """
    with tf.init_scope(), tf.device("/CPU:0"):
        return tf.constant(array)


class Table:
    """The rows of an array [n, ...]."""

    def __init__(self, array: np.ndarray | RepeatedArray) -> None:
        rows = stored_rows(array)
        self._repeats, self._stored = len(rows) < len(array), len(rows)
        self._rows = host_tensor(rows)

    def __call__(self, ids: tf.Tensor, epochs: tf.Tensor) -> tf.Tensor:
        """Returns the rows `ids` (int64 [b]), [b, ...] in the array's dtype; ignores `epochs`."""
        del epochs
        return tf.gather(self._rows, ids % self._stored if self._repeats else ids)
