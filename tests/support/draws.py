"""Draws in a keyed scope, for tests of randomness."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from orbit_runner.determinism.scopes import keyed_draws_scope

KEY = {"seed": 7, "step": 5, "replica": 1, "purpose": "train"}


def uniform_draw() -> tf.Tensor:
    return tf.random.uniform([4])


def drawn(draw: Callable[[], Any] = uniform_draw, **key: Any) -> Any:
    """Returns draws with a key, as numpy arrays."""
    with keyed_draws_scope(**{**KEY, **key}):
        return tf.nest.map_structure(np.asarray, draw())


def traced_step(draw: Callable[[], Any], seed: int = 7) -> Any:
    """Returns a function of the step that draws and is not yet traced."""

    @tf.function(input_signature=[tf.TensorSpec([], tf.int64)])
    def step(index: tf.Tensor) -> Any:
        with keyed_draws_scope(seed, index, 0):
            return draw()

    return step


def all_distinct(arrays: Any) -> bool:
    return len({np.asarray(array).tobytes() for array in arrays}) == len(arrays)
