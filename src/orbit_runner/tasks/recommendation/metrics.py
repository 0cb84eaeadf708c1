"""Metrics of the rank of the one relevant item of each user."""

from __future__ import annotations

import math

import tensorflow as tf

from orbit_runner.tasks.metrics import Ratio


class HitRatio(Ratio):
    """The share of users whose item is among the first k."""

    def __init__(self, k: int) -> None:
        super().__init__(f"hr_at_{k}")
        self.k = k

    @tf.autograph.experimental.do_not_convert
    def update_state(self, ahead: tf.Tensor, weights: tf.Tensor) -> None:
        """Adds a batch.

        `ahead` is the number of items ahead of the relevant one, float32 [batch]. `weights` are
        float32 [batch].
        """
        hits = tf.cast(ahead < self.k, tf.float32)
        self.add(tf.reduce_sum(hits * weights), tf.reduce_sum(weights))


class Ndcg(Ratio):
    """The mean of 1 / log2(rank + 1) for items among the first k, and 0 for others.

    This is the normalized discounted cumulative gain of one relevant item: the ideal gain is 1.
    """

    def __init__(self, k: int) -> None:
        super().__init__(f"ndcg_at_{k}")
        self.k = k

    @tf.autograph.experimental.do_not_convert
    def update_state(self, ahead: tf.Tensor, weights: tf.Tensor) -> None:
        """Adds a batch.

        `ahead` is the number of items ahead of the relevant one, float32 [batch]. `weights` are
        float32 [batch].
        """
        gains = tf.where(ahead < self.k, math.log(2.0) / tf.math.log(ahead + 2.0), 0.0)
        self.add(tf.reduce_sum(gains * weights), tf.reduce_sum(weights))
