"""The learning rates to report, for optimizers of any kind."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

RATE = "learning_rate"


def learning_rates(optimizer: Any) -> dict[str, Any]:
    """Returns the learning rates of the next step by name.

    The name is `learning_rate`. An optimizer that consists of several has a rate for each of them,
    named `<class>_<number>_learning_rate` as in Model Garden.
    """
    return {name: rate.numpy() for name, rate in learning_rate_tensors(optimizer).items()}


def learning_rate_tensors(optimizer: Any) -> dict[str, tf.Tensor]:
    """Returns the learning rates of the next step as scalar tensors, for use inside a graph."""
    parts = getattr(optimizer, "optimizers", None)
    if parts is None:
        return {RATE: _rate(optimizer)}
    return {f"{type(part).__name__}_{n}_{RATE}": _rate(part) for n, part in enumerate(parts)}


def _rate(optimizer: Any) -> tf.Tensor:
    rate = optimizer.learning_rate
    return tf.convert_to_tensor(rate(optimizer.iterations) if callable(rate) else rate)
