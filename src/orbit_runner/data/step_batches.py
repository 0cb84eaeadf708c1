"""Successive batches made in one call, by the numbers of their steps: no pipeline, no iterator."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chunks:
    """The batches of a set that lies in memory.

    Attributes:
        make: From places in the row of examples, int64 [k, b], to nested tensors [k, b, ...].
        global_batch_size: Examples of a step on all replicas, B.
        batch_size: Examples of a step on one replica, b.
        length: How many batches to make at once: a call costs as much as a small batch.
        nbytes: What the set takes in memory.
        steps: How many batches there are; None where they never end.
    """

    make: Callable[[tf.Tensor], Any]
    global_batch_size: int
    batch_size: int
    length: int
    nbytes: int
    steps: int | None = None

    def __call__(self, first: tf.Tensor, count: int | tf.Tensor, replica: int | tf.Tensor) -> Any:
        """Makes the batches of successive steps for one replica.

        Args:
            first: The first of the steps, int64 scalar.
            count: How many, int64 scalar.
            replica: The number of the replica.

        Returns:
            Nested tensors [count, batch_size, ...].
        """
        steps = first + tf.range(count, dtype=tf.int64)
        shift = tf.cast(replica, tf.int64) * self.batch_size
        places = steps[:, tf.newaxis] * self.global_batch_size + shift
        return self.make(places + tf.range(self.batch_size, dtype=tf.int64))

    def batch_at(self, step: tf.Tensor) -> Any:
        """Makes the whole batch of one step.

        Args:
            step: Its number, int64 scalar.

        Returns:
            Nested tensors [batch_size, ...].
        """
        # What is read lies in the memory of the host, and is much.
        with tf.device("CPU:0"):
            return tf.nest.map_structure(lambda tensor: tensor[0], self(step, 1, 0))
