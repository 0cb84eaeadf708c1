"""Labels of a training batch with the weight of each example in the loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors


class WeightedLabels(NamedTuple):
    """Labels, and the weights of the examples, float32 [batch] each."""

    labels: Tensors
    weights: tf.Tensor  # In the loss.
    counts: tf.Tensor  # In the metrics, which ignore class weights.


def training_labels(
    labels: Tensors,
    weights: tf.Tensor | None,
    by_class: Mapping[str, float],
    classes: tf.Tensor | None = None,
) -> Tensors:
    """Returns the labels of a training batch as `build_losses` and `process_metrics` take them.

    Args:
        labels: The labels.
        weights: The weights of the examples, float32 [batch]; all 1 if None.
        by_class: The weight of each class, in the order of the class numbers; empty for none.
        classes: The class of each example: integers [batch] or [batch, 1], or its shares of the
            classes, float [batch, classes], which give the mean weight. `labels` if None.

    Returns:
        The labels, or `WeightedLabels` if examples have weights.
    """
    if not by_class:
        return labels if weights is None else WeightedLabels(labels, weights, weights)
    example_weights = _weights(
        np.array([*by_class.values()], np.float32), labels if classes is None else classes
    )
    if weights is None:
        return WeightedLabels(labels, example_weights, tf.ones_like(example_weights))
    return WeightedLabels(labels, example_weights * weights, weights)


def split_labels(labels: Tensors) -> tuple[Tensors, dict[str, tf.Tensor]]:
    """Returns the labels alone, and the arguments of a metric with the weights of its examples."""
    if not isinstance(labels, WeightedLabels):
        return labels, {}
    return labels.labels, {"sample_weight": labels.counts}


def _weights(table: np.ndarray, classes: tf.Tensor) -> tf.Tensor:
    if classes.shape.rank == 2 and classes.shape[1] != 1:
        return tf.linalg.matvec(tf.cast(classes, tf.float32), tf.constant(table))
    return tf.gather(tf.constant(table), tf.cast(tf.reshape(classes, [-1]), tf.int32))
