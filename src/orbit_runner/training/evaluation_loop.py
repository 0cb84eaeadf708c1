"""An evaluation as one graph, also where nobody knows how many batches there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def to_the_end(step_fn: Callable[[Any], Any]) -> Callable[[Any, tf.Tensor], None]:
    """Makes a graph that evaluates batches until there are no more.

    Args:
        step_fn: Evaluates one batch.

    Returns:
        A function of an iterator and the most batches to take, int32 scalar.
    """

    @tf.function
    def loop(iterator: Any, num_steps: tf.Tensor) -> None:
        step, more = tf.constant(0), tf.constant(True)
        while more and step < num_steps:
            found = iterator.get_next_as_optional()
            more = found.has_value()
            if more:
                step_fn(found.get_value())
            step += 1

    return loop
