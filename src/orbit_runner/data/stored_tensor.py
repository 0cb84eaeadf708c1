"""Reads rows of an in-memory array that is stored once for any number of pipelines."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from orbit_runner.data.arrays import RepeatedArray, TextArray, stored_rows

_HOST = "/CPU:0"
_device = contextvars.ContextVar("device", default=_HOST)


@contextlib.contextmanager
def storage_scope(device: str) -> Iterator[None]:
    """Stores the tensors that are created in a `with` block on a device, such as `GPU:0`."""
    token = _device.set(device)
    try:
        yield
    finally:
        _device.reset(token)


def stored_tensor(array: np.ndarray) -> tf.Tensor:
    """Returns an eager tensor for graphs to capture: in host memory, or as `storage_scope` says.

    A captured tensor is passed by reference. A constant would be part of each function's graph,
    which is limited to 2 GB. An int32 array that is not in host memory becomes an int64 tensor.
    """
    device = _device.get()
    if device != _HOST and array.dtype == np.int32:
        # TensorFlow passes int32 tensors to a function on a GPU through host memory.
        array = array.astype(np.int64)
    with tf.init_scope(), tf.device(device):
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
        self._dtype = tf.as_dtype(rows.dtype) if rows.dtype == np.int32 else self._rows.dtype

    def __call__(self, ids: tf.Tensor, epochs: tf.Tensor) -> tf.Tensor:
        """Returns the rows `ids` (int64 [b]), [b, ...] in the array's dtype; ignores `epochs`."""
        del epochs
        rows = tf.gather(self._rows, ids % self._stored if self._repeats else ids)
        if self._texts is not None:
            return tf.gather(self._texts, rows)
        return tf.cast(rows, self._dtype)


class SortedTable:
    """Values in ascending order, [n], among which others are searched."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = stored_tensor(values)
        self._size = len(values)
        self._is_compiled = _device.get() != _HOST

    def count_at_most(self, wanted: tf.Tensor) -> tf.Tensor:
        """Returns how many values are at most each of `wanted` ([b] in their dtype), int64 [b]."""
        if not self._is_compiled:
            # As one row, because that is faster than the same search without rows.
            rows = self._values[tf.newaxis], wanted[tf.newaxis]
            return tf.searchsorted(*rows, side="right", out_type=tf.int64)[0]
        # XLA compiles `tf.searchsorted` to a comparison with each of the values.
        count = tf.zeros_like(wanted, tf.int64)
        step = 1 << max(0, self._size.bit_length() - 1)
        while step:
            place = tf.minimum(count + step, self._size) - 1
            is_at_most = (count + step <= self._size) & (tf.gather(self._values, place) <= wanted)
            count = tf.where(is_at_most, count + step, count)
            step //= 2
        return count
