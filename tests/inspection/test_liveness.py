"""The estimated peak of graphs whose memory can be computed by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from orbit_runner.inspection.memory.liveness import graph_peak

SIZE = 1024  # elements of a tensor, 4 KiB
UNIT = SIZE * 4


def peak_of(function: Callable[..., Any], threads: int = 1) -> float:
    """Returns the peak in tensors of `SIZE` elements."""
    graph = tf.function(function).get_concrete_function(tf.TensorSpec([SIZE], tf.float32)).graph
    found = graph_peak(graph, threads=threads)
    return (found.forward + found.other) / UNIT


def whole_peak_of(function: Callable[..., Any]) -> int:
    """Returns the peak in whole tensors of `SIZE` elements, without scalars."""
    return round(peak_of(function))


def _inner(x: tf.Tensor) -> tf.Tensor:
    return tf.cumsum(tf.cumsum(x))


def _loop(x: tf.Tensor) -> tf.Tensor:

    def body(n: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return n + 1, _inner(y)

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


def test_two_threads_keep_the_tensors_of_two_branches() -> None:
    def branches(x: tf.Tensor) -> tf.Tensor:
        parts = [tf.reduce_sum(tf.tile(tf.cumsum(x), [100])) for _ in range(2)]
        return tf.add_n(parts)

    assert 100 < peak_of(branches, threads=1) < 110
    assert 200 < peak_of(branches, threads=2) < 210


def test_variable_is_copied_if_its_earlier_value_is_read_after_an_update() -> None:
    variable = tf.Variable(tf.zeros([SIZE]))

    def reads_before(x: tf.Tensor) -> tf.Tensor:
        total = tf.reduce_sum(variable)
        with tf.control_dependencies([total]):
            variable.assign_sub(x)
        return total

    def reads_after(x: tf.Tensor) -> tf.Tensor:
        value = variable.read_value()
        with tf.control_dependencies([variable.assign_sub(x, read_value=False)]):
            return tf.reduce_sum(value)

    assert whole_peak_of(reads_before) == 0
    assert whole_peak_of(reads_after) == 1


def test_variable_with_sparse_updates_is_copied_when_it_is_read() -> None:
    dense, sparse = (tf.Variable(tf.zeros([SIZE])) for _ in range(2))

    def read(x: tf.Tensor, variable: tf.Variable, *, update: bool) -> tf.Tensor:
        if update:
            variable.scatter_sub(tf.IndexedSlices(x[:1], tf.constant([0])))
        return tf.reduce_sum(variable.read_value())

    assert whole_peak_of(lambda x: read(x, dense, update=False)) == 0
    assert whole_peak_of(lambda x: read(x, sparse, update=True)) == 1


def test_size_of_an_unknown_shape_is_that_of_the_largest_input() -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        return tf.cumsum(tf.boolean_mask(x, x > 0))

    # The mask is smaller, and its indices, which are of type int64, are larger.
    assert peak_of(function) >= 2


def test_unused_ends_of_blocks_are_part_of_the_peak() -> None:
    def function(x: tf.Tensor) -> Any:
        freed = tf.tile(x, [60])
        behind = tf.tile(freed[:SIZE], [10])
        with tf.control_dependencies([behind]):
            total = tf.reduce_sum(freed)
        inside = tf.tile(x + total, [50])  # in the block of the first tensor
        return behind, inside, tf.tile(inside[:SIZE], [4])

    graph = tf.function(function).get_concrete_function(tf.TensorSpec([SIZE], tf.float32)).graph
    found = graph_peak(graph)

    assert found.unused // UNIT == 10
    assert found.total == found.forward + found.other + found.unused + found.constants
    assert found.total // UNIT == 10 + 50 + 10 + 4 + 1


def test_memory_of_variables_precedes_that_of_a_step() -> None:
    graph = (
        tf.function(lambda x: tf.tile(x, [400]))
        .get_concrete_function(tf.TensorSpec([SIZE], tf.float32))
        .graph
    )

    # The rest of the first region, 2 MiB, is smaller than twice the tensor.
    assert round(graph_peak(graph).unused / UNIT) == 512 - 400
    assert graph_peak(graph, persistent=[100 * UNIT]).unused == 0
