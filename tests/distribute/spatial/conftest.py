from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.distribute.spatial import partition_model

CPUS = [f"CPU:{index}" for index in range(4)]


class Step(NamedTuple):
    outputs: np.ndarray
    gradients: dict[str, np.ndarray]
    state: dict[str, np.ndarray]


def _step(called: Any, model: tf_keras.Model, inputs: Any, training: bool) -> Step:
    values = {"input": tf.constant(inputs)} if np.asarray(inputs).dtype.kind == "f" else {}

    @tf.function
    def run() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(list(values.values()))
            outputs = called(values.get("input", inputs), training=training)
            # Each number of the output has its own weight, so that no two errors cancel.
            weights = tf.reshape(tf.range(tf.size(outputs), dtype=tf.float64), tf.shape(outputs))
            loss = tf.reduce_sum(tf.cast(outputs, tf.float64) * tf.sin(weights))
        named = values | {variable.name: variable for variable in model.trainable_variables}
        return outputs, tape.gradient(loss, named)

    outputs, gradients = run()
    return Step(
        outputs.numpy(),
        {name: gradient.numpy() for name, gradient in gradients.items()},
        {variable.name: variable.numpy() for variable in model.non_trainable_variables},
    )


@pytest.fixture
def same_weights() -> None:
    """Seeds the initial weights."""
    tf_keras.utils.set_random_seed(5)


@pytest.fixture
def steps() -> Callable[..., tuple[Step, Step]]:
    """Takes a step with a model and with its partitioned version, from the same weights."""

    def both(
        model: tf_keras.Model, dims: Sequence[int], inputs: Any, training: bool = True
    ) -> tuple[Step, Step]:
        before = model.get_weights()
        whole = _step(model, model, inputs, training)
        model.set_weights(before)
        parts = partition_model(model, dims, [CPUS[: math.prod(dims)]])
        return whole, _step(parts, model, inputs, training)

    return both


@pytest.fixture
def close() -> Callable[..., None]:
    """Compares two steps; each gradient relative to its largest number."""

    def compare(
        whole: Step, parts: Step, *, outputs: float, gradients: float, state: float
    ) -> None:
        np.testing.assert_allclose(parts.outputs, whole.outputs, rtol=0, atol=outputs)
        assert parts.gradients.keys() == whole.gradients.keys()
        for name, expected in whole.gradients.items():
            bound = gradients * np.max(np.abs(expected))
            np.testing.assert_allclose(
                parts.gradients[name], expected, rtol=0, atol=bound, err_msg=name
            )
        for name, expected in whole.state.items():
            np.testing.assert_allclose(
                parts.state[name], expected, rtol=0, atol=state, err_msg=name
            )

    return compare
