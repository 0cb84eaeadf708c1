"""Metrics of one target."""

from __future__ import annotations

import tensorflow as tf

from orbit_runner.tasks.metrics import Ratio


class AbsoluteError(Ratio):
    """The mean absolute error, in the unit of the target."""

    @tf.autograph.experimental.do_not_convert
    def update_state(
        self, labels: tf.Tensor, outputs: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        """Adds a batch: float32 [batch] each; all weights are 1 if None."""
        _add(self, tf.abs(outputs - labels), sample_weight)


class RootSquaredError(Ratio):
    """The root of the mean squared error, in the unit of the target."""

    @tf.autograph.experimental.do_not_convert
    def update_state(
        self, labels: tf.Tensor, outputs: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        """Adds a batch: float32 [batch] each; all weights are 1 if None."""
        _add(self, tf.square(outputs - labels), sample_weight)

    def result(self) -> tf.Tensor:
        """Returns the error, or 0 if nothing was added."""
        return tf.sqrt(super().result())


def _add(metric: Ratio, values: tf.Tensor, weights: tf.Tensor | None) -> None:
    weights = tf.ones_like(values) if weights is None else weights
    metric.add(tf.reduce_sum(values * weights), tf.reduce_sum(weights))
