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
    parts = getattr(optimizer, "optimizers", None)
    if parts is None:
        return {RATE: _rate(optimizer)}
    return {f"{type(part).__name__}_{n}_{RATE}": _rate(part) for n, part in enumerate(parts)}


def _rate(optimizer: Any) -> Any:
    rate = optimizer.learning_rate
    value = rate(optimizer.iterations) if callable(rate) else rate
    return tf.convert_to_tensor(value).numpy()
