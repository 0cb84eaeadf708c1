"""Loops that run many steps in one graph, on the batches of an iterator.

They call `tf.while_loop` directly. AutoGraph would convert each function from here to the task
before it found that there is nothing to convert.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.train.loops.loop_pieces import Loop
from orbit_runner.train.loops.recorder import Recorder

if TYPE_CHECKING:
    from orbit_runner.train.loops.loop_pieces import BatchIterator, BatchSource
    from orbit_runner.utils.types import Tensors


def step_loop(step_fn: Callable[[BatchSource], object], recorder: Recorder | None = None) -> Loop:
    """Returns a graph function that runs steps and takes the records that end within them."""

    def run_steps(iterator: BatchSource, count: tf.Tensor) -> None:
        def take(done: tf.Tensor) -> list[tf.Tensor]:
            # Ops keep the names that they have outside a loop.
            with tf.name_scope(""):
                step_fn(iterator)
            return [done + 1]

        steps = tf.cast(count, tf.int32)
        tf.while_loop(lambda done: done < steps, take, [tf.constant(0)])

    @tf.function(autograph=False)
    def loop(iterator: BatchSource, first: tf.Tensor, num_steps: tf.Tensor) -> None:
        if recorder is None:
            run_steps(iterator, num_steps)
            return

        def take_record(done: tf.Tensor) -> list[tf.Tensor]:
            count = tf.minimum(num_steps - done, recorder.steps_left(first + done))
            run_steps(iterator, count)
            recorder.record(first + done + count)
            return [done + count]

        recorder.start(first)
        tf.while_loop(lambda done: done < num_steps, take_record, [tf.zeros([], tf.int64)])

    return loop


def exhausting_loop(step_fn: Callable[[Tensors], object]) -> Loop:
    """Returns a graph function that runs steps until the iterator is exhausted, or fewer."""

    @tf.function(autograph=False)
    def loop(iterator: BatchIterator, _: tf.Tensor, num_steps: tf.Tensor) -> None:
        def take(done: tf.Tensor, _: tf.Tensor) -> list[tf.Tensor]:
            next_batch = iterator.get_next_as_optional()

            def evaluate() -> tf.Tensor:
                step_fn(next_batch.get_value())
                return done + 1

            more = next_batch.has_value()
            return [tf.cond(more, evaluate, lambda: done), more]

        tf.while_loop(
            lambda done, more: more & (done < num_steps),
            take,
            [tf.zeros([], tf.int64), tf.constant(True)],
        )

    return loop
