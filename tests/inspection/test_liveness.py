"""The estimated peak of graphs whose memory can be computed by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from orbit_runner.inspection.liveness import graph_peak

SIZE = 1024  # elements of a tensor, 4 KiB
UNIT = SIZE * 4


def peak_of(function: Callable[..., Any], inputs: int = 1) -> float:
    """Returns the peak in tensors of `SIZE` elements."""
    specs = [tf.TensorSpec([SIZE], tf.float32)] * inputs
    found = graph_peak(tf.function(function).get_concrete_function(*specs).graph)
    return (found.forward + found.other) / UNIT


def _inner(x: tf.Tensor) -> tf.Tensor:
    return tf.cumsum(tf.cumsum(x))


def _loop(x: tf.Tensor) -> tf.Tensor:
    body = lambda n, y: (n + 1, _inner(y))  # noqa: E731
    return tf.while_loop(lambda n, _: n < 3, body, (0, x))[1]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x, 0),
        (lambda x: tf.reshape(x, [32, 32]), 0),
        (tf.cumsum, 1),
        # The first result is freed when the second one exists.
        (_inner, 2),
        (lambda x: tf.cumsum(tf.cumsum(tf.cumsum(x))), 2),
        # Elementwise ops reuse the buffer, but not that of an input of the graph.
        (lambda x: tf.exp(x), 1),
        (lambda x: tf.exp(tf.exp(tf.cumsum(x))), 1),
        # Both are still read.
        (lambda x: (tf.cumsum(x), tf.cumsum(x, reverse=True)), 2),
        (tf.function(_inner), 2),
    ],
)
def test_peak_counts_the_tensors_that_are_alive_together(
    function: Callable[..., Any], expected: float
) -> None:
    assert peak_of(function) == expected


def test_peak_does_not_count_ops_without_effect() -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        tf.tile(x, [100])
        return tf.cumsum(x)

    assert peak_of(function) == 1


def test_peak_of_a_loop_contains_that_of_its_body() -> None:
    # That of the body, the value between two iterations, and a few scalars.
    assert 3 <= peak_of(_loop) < 4


def test_outputs_that_the_gradient_reads_are_alive_at_the_peak() -> None:
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for _ in range(5):
                y = tf.tanh(y)
            loss = tf.reduce_sum(y)
        return tape.gradient(loss, x)

    graph = tf.function(step).get_concrete_function(tf.TensorSpec([SIZE], tf.float32)).graph

    assert graph_peak(graph).forward // UNIT == 5
