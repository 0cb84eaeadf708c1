"""Loops that run many steps in one graph, on the batches of an iterator.

They call `tf.while_loop` directly. AutoGraph would convert each function from here to the task
before it found that there is nothing to convert.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from orbit_runner.train.loops.recorder import Recorder

if TYPE_CHECKING:
    from orbit_runner.train.loops.loop_pieces import BatchIterator, BatchSource, WhileArguments
    from orbit_runner.utils.types import Tensors


Loop = Callable[[Any, tf.Tensor], None]


def counted_loop(
    step_fn: Callable[[BatchIterator], object],
    last_fn: Callable[[BatchIterator], object] | None = None,
) -> Loop:
    """Returns a graph function of an iterator and the number of steps to run, an int32 scalar.

    `last_fn` is the step for the batch after them, if there is one.
    """

    @tf.function(autograph=False)
    def loop(iterator: BatchIterator, num_steps: tf.Tensor) -> None:
        tf.while_loop(*_step_loop(step_fn, iterator, num_steps))
        if last_fn is not None:
            last_fn(iterator)

    return loop


def training_loop(
    step_fn: Callable[[BatchSource], object], recorder: Recorder | None
) -> Callable[[BatchSource, tf.Tensor, tf.Tensor], None]:
    """Returns a graph function that runs steps and takes the records that end within them.

    Its arguments are an iterator, the global step and the number of steps, int64 scalars. Without a
    recorder, it takes no records.
    """

    @tf.function(autograph=False)
    def loop(iterator: BatchSource, first: tf.Tensor, num_steps: tf.Tensor) -> None:
        if recorder is None:
            tf.while_loop(*_step_loop(step_fn, iterator, tf.cast(num_steps, tf.int32)))
            return

        def take_record(done: tf.Tensor) -> list[tf.Tensor]:
            count = tf.minimum(num_steps - done, recorder.steps_left(first + done))
            tf.while_loop(*_step_loop(step_fn, iterator, tf.cast(count, tf.int32)))
            recorder.record(first + done + count)
            return [done + count]

        recorder.start(first)
        tf.while_loop(lambda done: done < num_steps, take_record, [tf.zeros([], tf.int64)])

    return loop


def _step_loop(
    step_fn: Callable[[BatchSource], object], iterator: BatchSource, count: tf.Tensor
) -> WhileArguments:
    """Returns the arguments of the `tf.while_loop` that runs `count` steps, an int32 scalar."""

    def take(done: tf.Tensor) -> list[tf.Tensor]:
        # Ops keep the names that they have outside a loop.
        with tf.name_scope(""):
            step_fn(iterator)
        return [done + 1]

    return lambda done: done < count, take, [tf.constant(0)]


def exhausting_loop(step_fn: Callable[[Tensors], object]) -> Loop:
    """Returns a graph function that evaluates batches until the iterator is exhausted.

    Its arguments are an iterator and the maximum number of batches, an int32 scalar.
    """

    @tf.function(autograph=False)
    def loop(iterator: BatchIterator, num_steps: tf.Tensor) -> None:
        def take(done: tf.Tensor, _: tf.Tensor) -> list[tf.Tensor]:
            next_batch = iterator.get_next_as_optional()

            def evaluate() -> tf.Tensor:
                step_fn(next_batch.get_value())
                return done + 1

            more = next_batch.has_value()
            return [tf.cond(more, evaluate, lambda: done), more]

        tf.while_loop(
            lambda done, more: more & (done < num_steps), take, [tf.constant(0), tf.constant(True)]
        )

    return loop
