"""Batches of consecutive steps, computed in one call, without a dataset or an iterator."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chunks:
    """The batches of an in-memory dataset."""

    # From positions in the sequence of examples, int64 [k, b], to nested tensors [k, b, ...].
    make: Callable[[tf.Tensor], Tensors]
    global_batch_size: int
    batch_size: int  # Examples per replica.
    length: int  # Number of batches to make in one call.
    nbytes: int  # Memory that the dataset takes.
    steps: int | None = None  # None if the batches never end.
    # Whether a GPU stores the dataset, so that XLA compiles `make` together with the steps.
    on_gpu: bool = False

    def __call__(
        self, first: tf.Tensor, count: int | tf.Tensor, replica: int | tf.Tensor
    ) -> Tensors:
        """Returns the batches of consecutive steps for one replica.

        They are nested tensors [count, batch_size, ...]. `first` (the first step) and `count` are
        int64 scalars.
        """
        steps = first + tf.range(count, dtype=tf.int64)
        shift = tf.cast(replica, tf.int64) * self.batch_size
        places = steps[:, tf.newaxis] * self.global_batch_size + shift
        return self.make(places + tf.range(self.batch_size, dtype=tf.int64))

    def batch_at(self, step: tf.Tensor) -> Tensors:
        """Returns the batch of one step for replica 0: nested tensors [batch_size, ...].

        `step` is an int64 scalar. If there is only one replica, this is the whole batch.
        """
        # The arrays are large, and in host memory.
        with tf.device("CPU:0"):
            return tf.nest.map_structure(lambda tensor: tensor[0], self(step, 1, 0))
