"""Metrics of target tokens, excluding padding."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from orbit_runner.tasks.metrics import Ratio
from orbit_runner.tasks.translation.losses import negative_log_likelihood, token_mask


def _weights(targets: tf.Tensor, sample_weight: tf.Tensor | None) -> tf.Tensor:
    mask = token_mask(targets)
    return mask if sample_weight is None else mask * sample_weight[:, tf.newaxis]


class TokenAccuracy(Ratio):
    """The share of target tokens that have the largest logit."""

    @tf.autograph.experimental.do_not_convert
    def update_state(
        self, labels: Any, logits: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        """Adds a batch.

        `labels["targets"]` is int32 [batch, length], `logits` float32 [batch, length, vocabulary].
        `sample_weight` is float32 [batch]; all 1 if None.
        """
        targets = labels["targets"]
        weights = _weights(targets, sample_weight)
        best = tf.argmax(logits, axis=-1, output_type=tf.int32)
        hits = tf.cast(tf.equal(best, targets), tf.float32) * weights
        self.add(tf.reduce_sum(hits), tf.reduce_sum(weights))


class Perplexity(Ratio):
    """The exponential of the mean cross entropy of target tokens, without label smoothing."""

    @tf.autograph.experimental.do_not_convert
    def update_state(
        self, labels: Any, logits: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        """Adds a batch.

        `labels["targets"]` is int32 [batch, length], `logits` float32 [batch, length, vocabulary].
        `sample_weight` is float32 [batch]; all 1 if None.
        """
        targets = labels["targets"]
        weights = _weights(targets, sample_weight)
        entropy = negative_log_likelihood(targets, logits) * weights
        self.add(tf.reduce_sum(entropy), tf.reduce_sum(weights))

    def result(self) -> tf.Tensor:
        """Returns the perplexity, or 1 if nothing was added."""
        return tf.exp(super().result())
