"""Turns rows of tokens into a matrix."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from orbit_runner.data.table import on_cpu
from orbit_runner.data.text.source import Ragged


class PaddedRows:
    """The rows of one side of all pairs."""

    def __init__(self, rows: Ragged) -> None:
        """Takes them into tensors.

        Args:
            rows: n rows.
        """
        self._values, self._offsets = on_cpu(rows.values), on_cpu(rows.offsets)

    def lengths(self, ids: tf.Tensor) -> tf.Tensor:
        """Measures rows.

        Args:
            ids: Numbers of the rows, int64 [b]; -1 for one without a token.

        Returns:
            int64 [b].
        """
        ends = tf.gather(self._offsets, ids + 1)
        return tf.where(ids < 0, np.int64(0), ends - tf.gather(self._offsets, tf.maximum(ids, 0)))

    def __call__(self, ids: tf.Tensor, width: int | tf.Tensor) -> tf.Tensor:
        """Gathers rows.

        Args:
            ids: Numbers of the rows, int64 [b]; -1 for one without a token.
            width: Number of columns, no fewer than tokens in a row.

        Returns:
            int32 [b, width]; 0 behind the end of a row.
        """
        columns = tf.range(tf.cast(width, tf.int64))
        inside = columns < self.lengths(ids)[:, tf.newaxis]
        firsts = tf.gather(self._offsets, tf.maximum(ids, 0))
        places = tf.where(inside, firsts[:, tf.newaxis] + columns, np.int64(0))
        return tf.where(inside, tf.gather(self._values, places), 0)
