"""What the report shows of the outputs of a Keras model: classes or numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from orbit_runner.tasks.keras.label_checks import LossKind
from orbit_runner.tasks.keras.outputs import Output
from orbit_runner.tasks.report_examples import Answers, Target


def are_classes(kind: LossKind | None, output: Output) -> bool:
    """Returns whether an output predicts one class of each example."""
    if kind is None or len(output.shape) != 1 or kind.ignored_class is not None:
        return False
    return kind.kind == "binary" if output.width == 1 else kind.kind in ("sparse", "categorical")


def class_shares(outputs: np.ndarray, kind: LossKind) -> np.ndarray:
    """Returns the probabilities of the classes, float64 [n, classes], of outputs [n, k].

    A binary output has the classes 0 and 1.
    """
    values = tf.cast(outputs, tf.float64)
    if kind.kind == "binary":
        shares = tf.sigmoid(values) if kind.from_logits else values
        values = tf.concat([1.0 - shares, shares], axis=1)
    elif kind.from_logits:
        values = tf.nn.softmax(values)
    probabilities: np.ndarray = values.numpy()
    return probabilities


def target_of(
    output: Output, kinds: Mapping[str, LossKind], answers: Answers, classes: Sequence[str]
) -> Target | None:
    """Returns what an output predicts; None if that is neither one class nor one number.

    `classes` are the names of the classes; empty if they have none.
    """
    name, kind = output.name, kinds[output.name]
    labels, values = answers.labels.get(name), answers.outputs[name]
    if labels is None:
        return None
    if are_classes(kind, output):
        if labels.shape == values.shape and kind.kind == "categorical":
            labels = labels.argmax(axis=-1)
        if labels.size == len(values) and (labels == labels // 1).all():
            numbers = labels.reshape(-1).astype(np.int64)
            return Target(name, numbers, class_shares(values, kind), classes)
    elif not kind.kind and labels.size == values.size == len(values):
        return Target(name, labels.reshape(-1), values.reshape(-1), None)
    return None
