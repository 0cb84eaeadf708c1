"""Metrics of the place at which the one right item stands."""

from __future__ import annotations

import math

import tensorflow as tf

from orbit_runner.tasks.metrics import Ratio


class HitRatio(Ratio):
    """The share of users whose item is among the first k."""

    def __init__(self, k: int) -> None:
        """Makes the metric.

        Args:
            k: How many places count.
        """
        super().__init__(f"hr_at_{k}")
        self.k = k

    @tf.autograph.experimental.do_not_convert
    def update_state(self, ahead: tf.Tensor, weights: tf.Tensor) -> None:
        """Adds a batch.

        Args:
            ahead: Items ahead of the right one, float32 [batch].
            weights: float32 [batch].
        """
        hits = tf.cast(ahead < self.k, tf.float32)
        self.add(tf.reduce_sum(hits * weights), tf.reduce_sum(weights))


class Ndcg(Ratio):
    """The mean of 1 / log2(place + 1) for items among the first k places, 0 for others.

    That is the normalised discounted cumulative gain where one item is right: the ideal gain is 1.
    """

    def __init__(self, k: int) -> None:
        """Makes the metric.

        Args:
            k: How many places count.
        """
        super().__init__(f"ndcg_at_{k}")
        self.k = k

    @tf.autograph.experimental.do_not_convert
    def update_state(self, ahead: tf.Tensor, weights: tf.Tensor) -> None:
        """Adds a batch.

        Args:
            ahead: Items ahead of the right one, float32 [batch].
            weights: float32 [batch].
        """
        gains = tf.where(ahead < self.k, math.log(2.0) / tf.math.log(ahead + 2.0), 0.0)
        self.add(tf.reduce_sum(gains * weights), tf.reduce_sum(weights))
