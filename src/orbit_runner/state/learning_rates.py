"""The learning rate of a record, whatever the optimizer is made of."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

RATE = "learning_rate"


def learning_rates(optimizer: Any) -> dict[str, Any]:
    """Returns the rate that the next step would take.

    Args:
        optimizer: The optimizer; one made of several has a rate for each of them.

    Returns:
        `learning_rate`, or `<class>_<number>_learning_rate` for each, as Model Garden names them.
    """
    return {name: rate.numpy() for name, rate in learning_rate_tensors(optimizer).items()}


def learning_rate_tensors(optimizer: Any) -> dict[str, tf.Tensor]:
    """Returns the same as scalar tensors, for use inside a graph.

    Args:
        optimizer: The optimizer.
    """
    parts = getattr(optimizer, "optimizers", None)
    if parts is None:
        return {RATE: _rate(optimizer)}
    return {f"{type(part).__name__}_{n}_{RATE}": _rate(part) for n, part in enumerate(parts)}


def _rate(optimizer: Any) -> tf.Tensor:
    rate = optimizer.learning_rate
    return tf.convert_to_tensor(rate(optimizer.iterations) if callable(rate) else rate)
