"""Metrics that add little to the time of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import tensorflow as tf
import tf_keras

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors

    class TaskMetric(Protocol):
        """A metric that a task builds: one of Keras, or one with the same methods."""

        name: str

        def update_state(self, *values: Tensors, **weights: tf.Tensor) -> None:
            """Adds a batch. The arguments are those that the task passes to its metrics."""

        def result(self) -> tf.Tensor:
            """Returns the value."""

        def reset_state(self) -> None:
            """Forgets all batches."""


class Ratio(tf_keras.metrics.Metric):
    """A sum divided by a weight. Both share one variable, so that an update is a single op.

    Keras' `Mean` runs about ten small ops per update, which noticeably slows down the training of a
    small network.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=name, dtype=tf.float32)
        self.totals = self.add_weight("totals", shape=(2,), initializer="zeros")

    # AutoGraph has nothing to convert here, and checking that takes time. The same holds below.
    @tf.autograph.experimental.do_not_convert
    def add(self, total: tf.Tensor, weight: tf.Tensor) -> None:
        """Adds to the sum and to the weight.

        Args:
            total: float32 scalar: the sum of the values, each multiplied by its weight.
            weight: float32 scalar: the sum of the weights.
        """
        self.totals.assign_add(tf.stack([total, weight]))

    def reset_state(self) -> None:
        """Resets the sum and the weight to 0."""
        self.totals.assign(tf.zeros([2]))

    @tf.autograph.experimental.do_not_convert
    def result(self) -> tf.Tensor:
        """Returns the mean, or 0 if nothing was added."""
        total, weight = tf.unstack(tf.convert_to_tensor(self.totals))
        return tf.math.divide_no_nan(total, weight)

    def weight(self) -> tf.Tensor:
        """Returns the sum of the weights."""
        return tf.convert_to_tensor(self.totals)[1]

    def read(self) -> tuple[np.float32, np.float32]:
        """Returns `result` and `weight` as host values, with one op."""
        total, weight = tf.convert_to_tensor(self.totals).numpy()
        with np.errstate(all="ignore"):
            return (total / weight if weight else np.float32(0.0)), weight


class RunningMean(Ratio):
    """A weighted mean of scalars."""

    @tf.autograph.experimental.do_not_convert
    def update_state(self, value: tf.Tensor, sample_weight: tf.Tensor | None = None) -> None:
        """Adds one value.

        Args:
            value: float32 scalar.
            sample_weight: float32 scalar; 1 if None. A value with weight 0 may be NaN.
        """
        if sample_weight is None:
            self.add(value, tf.constant(1.0))
        else:
            self.add(tf.math.multiply_no_nan(value, sample_weight), sample_weight)


class SparseAccuracy(Ratio):
    """The share of examples for which the label has the largest logit."""

    @tf.autograph.experimental.do_not_convert
    def update_state(
        self, labels: tf.Tensor, logits: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        """Adds a batch.

        Args:
            labels: int32 [batch].
            logits: float32 [batch, classes].
            sample_weight: float32 [batch]; all 1 if None.
        """
        best = tf.argmax(logits, axis=-1, output_type=tf.int32)
        hits = tf.cast(tf.equal(best, tf.cast(labels, tf.int32)), tf.float32)
        if sample_weight is None:
            size = hits.shape[0] if hits.shape[0] is not None else tf.size(hits)
            self.add(tf.reduce_sum(hits), tf.cast(size, tf.float32))
        else:
            self.add(tf.reduce_sum(hits * sample_weight), tf.reduce_sum(sample_weight))


class AbsoluteError(Ratio):
    """The mean absolute error, in the unit of the target."""

    @tf.autograph.experimental.do_not_convert
    def update_state(
        self, labels: tf.Tensor, outputs: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        """Adds a batch: float32 [batch] each; all weights are 1 if None."""
        values = self._values(outputs - labels)
        weights = tf.ones_like(values) if sample_weight is None else sample_weight
        self.add(tf.reduce_sum(values * weights), tf.reduce_sum(weights))

    def _values(self, errors: tf.Tensor) -> tf.Tensor:
        return tf.abs(errors)


class RootSquaredError(AbsoluteError):
    """The root of the mean squared error, in the unit of the target."""

    def _values(self, errors: tf.Tensor) -> tf.Tensor:
        return tf.square(errors)

    def result(self) -> tf.Tensor:
        """Returns the error, or 0 if nothing was added."""
        return tf.sqrt(super().result())
