"""Pads rows of tokens to a matrix."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from orbit_runner.data.stored_tensor import stored_tensor
from orbit_runner.data.text.source import Ragged


class PaddedRows:
    """The rows of one side of all pairs."""

    def __init__(self, rows: Ragged) -> None:
        self._values, self._offsets = stored_tensor(rows.values), stored_tensor(rows.offsets)

    def lengths(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the lengths of the rows `ids`, both int64 [b]; -1 is a row without tokens."""
        ends = tf.gather(self._offsets, ids + 1)
        return tf.where(ids < 0, np.int64(0), ends - tf.gather(self._offsets, tf.maximum(ids, 0)))

    def __call__(self, ids: tf.Tensor, width: int | tf.Tensor) -> tf.Tensor:
        """Returns the rows `ids`, padded at the end with 0: int32 [b, width].

        `ids` is int64 [b]; -1 is a row without tokens. `width` must not be less than the length of
        a row.
        """
        columns = tf.range(tf.cast(width, tf.int64))
        inside = columns < self.lengths(ids)[:, tf.newaxis]
        firsts = tf.gather(self._offsets, tf.maximum(ids, 0))
        places = tf.where(inside, firsts[:, tf.newaxis] + columns, np.int64(0))
        return tf.where(inside, tf.gather(self._values, places), 0)
