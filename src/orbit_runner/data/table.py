"""Reads rows of an array that lies in memory once, whatever number of pipelines read it."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from orbit_runner.data.source import Repeated


def stored_rows(array: np.ndarray | Repeated) -> np.ndarray:
    """Leaves out the copies of rows that repeat without taking memory.

    Args:
        array: [n, ...], possibly made by `np.broadcast_to`.

    Returns:
        The same array, or the rows that repeat as [k, ...].
    """
    if isinstance(array, Repeated):
        return array.rows
    return array[:1] if len(array) > 1 and array.strides[0] == 0 else array


def on_cpu(array: np.ndarray) -> tf.Tensor:
    """Makes a tensor for functions of tf.data to capture.

    Captured, it is passed by reference; as a constant it would be part of each function's graph,
    which is limited to 2 GB.

    Args:
        array: Any numpy array.

    Returns:
        An eager tensor in host memory, even where a GPU is the default.
    """
    with tf.init_scope(), tf.device("/CPU:0"):
        return tf.constant(array)


class Table:
    """The rows of an array."""

    def __init__(self, array: np.ndarray | Repeated) -> None:
        """Takes the array into a tensor.

        Args:
            array: [n, ...].
        """
        rows = stored_rows(array)
        self._repeats, self._stored = len(rows) < len(array), len(rows)
        self._rows = on_cpu(rows)

    def __call__(self, ids: tf.Tensor, epochs: tf.Tensor) -> tf.Tensor:
        """Gathers rows.

        Args:
            ids: int64 [b].
            epochs: Of no effect.

        Returns:
            [b, ...], the dtype of the array.
        """
        del epochs
        return tf.gather(self._rows, ids % self._stored if self._repeats else ids)
