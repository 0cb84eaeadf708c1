"""What a constant prediction reaches, to compare the results of a model with. No TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np

from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.errors import DataError
from orbit_runner.tasks.imbalance.classes import classes_of_labels

MAJORITY, MEAN = "majority", "mean"
# The metrics of classes and of numbers, by the names that Keras and this package record.
_ACCURACY = ("accuracy", "acc", "sparse_categorical_accuracy", "categorical_accuracy")
_ABSOLUTE = ("mae", "mean_absolute_error")
_SQUARED = ("mse", "mean_squared_error")
_ROOT = ("rmse", "root_mean_squared_error")
_NO_WEIGHTS = (None, None)
_MOST_LABELS = 10**7  # Masks of pixels may have many more.
_MOST_CLASSES = 10**5  # Whole numbers above are no class numbers.
# What is predicted, and the result, by the name of the metric.
Baselines = dict[str, tuple[str, float]]


def constant_class(
    train: np.ndarray, validation: np.ndarray, weights: Any = _NO_WEIGHTS, prefix: str = ""
) -> Baselines:
    """Returns the accuracy of the most frequent class of training rows on validation rows.

    Args:
        train: The classes of the training rows, integers from 0, [n].
        validation: The classes of the validation rows.
        weights: The weights of both; None if all are equal.
        prefix: The beginning of the names of the metrics.
    """
    is_majority = validation == np.bincount(train, weights[0]).argmax()
    accuracy = float(np.average(is_majority, weights=weights[1]))
    return {f"{prefix}{name}": (MAJORITY, accuracy) for name in _ACCURACY}


def constant_number(
    train: np.ndarray, validation: np.ndarray, weights: Any = _NO_WEIGHTS, prefix: str = ""
) -> Baselines:
    """Returns the errors of the mean of training rows on validation rows; see `constant_class`."""
    errors = validation - np.average(train, axis=0, weights=weights[0])
    absolute, squared = (
        float(np.average(values, weights=weights[1])) for values in (np.abs(errors), errors**2)
    )
    groups = ((_ABSOLUTE, absolute), (_SQUARED, squared), (_ROOT, squared**0.5))
    return {f"{prefix}{name}": (MEAN, value) for names, value in groups for name in names}


def constant_label(
    train: Any, validation: Any, excluded: np.ndarray | None = None, prefix: str = ""
) -> Baselines:
    """Returns the results for labels that may be classes or numbers; none for other labels."""
    labels = (train, validation)
    if not all(map(_are_few_numbers, labels)):
        return {}
    dropped = NO_EXAMPLES if excluded is None else excluded
    results = constant_number(
        np.delete(train, dropped, axis=0).astype(np.float64), validation, prefix=prefix
    )
    if max(float(np.max(x)) for x in labels) > _MOST_CLASSES:
        return results
    try:
        classes, others = (classes_of_labels(x).numbers for x in labels)
    except DataError:
        return results
    return results | constant_class(np.delete(classes, dropped), others, prefix=prefix)


def _are_few_numbers(labels: Any) -> bool:
    is_array = isinstance(labels, np.ndarray) and labels.dtype.kind in "iufb"
    return is_array and labels.ndim <= 2 and 0 < labels.size <= _MOST_LABELS
