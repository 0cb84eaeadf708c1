"""Loops that run many steps in one graph: on the batches of an iterator, or without one.

They call `tf.while_loop` directly. AutoGraph would convert each function from here to the task
before it found that there is nothing to convert.

A loop without an iterator creates several batches at once inside the graph. Here, it has 14 steps,
with chunks of 4 and a record every 6 steps:

    step      1   2   3   4   5   6   7   8   9  10  11  12  13  14
    chunk    [ batches 1–4 ] [ 5–6 ] [ batches 7–10 ] [11–12] [13–14]
    record                         ▲                        ▲

The batches of a chunk are created by one call. A chunk ends where a record does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from orbit_runner.data.chunks import Chunks
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
    def loop(iterator: BatchIterator, first: tf.Tensor, num_steps: tf.Tensor) -> None:
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


Take = Callable[[Any, tf.Tensor], None]
# Two functions. The first makes the batches of a chunk ahead, from its first step and the number of
# steps that are left, or nothing if they are made when they are used. The second runs the steps of
# the chunk; its arguments are what was made ahead, the first step and the number of steps.
Chunk = tuple[
    Callable[[tf.Tensor, tf.Tensor], list[tf.Tensor]],
    Callable[[list[tf.Tensor], tf.Tensor, tf.Tensor], None],
]


def chunked_loop(
    chunks: Chunks,
    strategy: tf.distribute.Strategy,
    take: Take,
    *,
    recorder: Recorder | None = None,
    jit_compile: bool = False,
) -> Loop:
    """Returns a graph function that runs steps, with the arguments of a `Loop`; it has no iterator.

    `take` runs a step on all replicas; its arguments are the batches of several steps and the row
    to use. With `jit_compile`, XLA compiles as many steps as batches are created at once.
    """
    if strategy.num_replicas_in_sync > 1:
        make_ahead, run_chunk = _distributed_chunk(chunks, strategy, take)
    else:
        make_ahead, run_chunk = _overlapping_chunk(chunks, take, jit_compile=jit_compile)

    @tf.function(autograph=False)
    def loop(_: object, first: tf.Tensor, steps: tf.Tensor) -> None:
        def remaining_steps(done: tf.Tensor) -> tf.Tensor:
            """Returns the steps until the loop or the current record ends."""
            remaining = steps - done
            return (
                remaining
                if recorder is None
                else tf.minimum(remaining, recorder.steps_left(first + done))
            )

        def take_chunk(
            done: tf.Tensor, batches: list[tf.Tensor]
        ) -> tuple[tf.Tensor, list[tf.Tensor]]:
            after = done + tf.minimum(remaining_steps(done), chunks.length)
            following = make_ahead(first + after, remaining_steps(after))
            run_chunk(batches, first + done, after - done)
            if recorder is not None:
                recorder.record(first + after)
            return after, following

        if recorder is not None:
            recorder.start(first)
        none = tf.zeros([], tf.int64)
        batches = make_ahead(first, remaining_steps(none))
        sizes = [tf.TensorShape([None, *tensor.shape[1:]]) for tensor in batches]
        tf.while_loop(
            lambda done, _: done < steps,
            take_chunk,
            (none, batches),
            shape_invariants=(none.shape, sizes),
        )

    return loop


def _distributed_chunk(chunks: Chunks, strategy: tf.distribute.Strategy, take: Take) -> Chunk:
    """Returns functions that create the batches of a chunk on each replica, just before it runs."""

    def make_batches(first: tf.Tensor, count: tf.Tensor) -> Tensors:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return chunks(first, count, replica)

    def run_chunk(_: list[tf.Tensor], first: tf.Tensor, count: tf.Tensor) -> None:
        _take_rows(take, strategy.run(make_batches, args=(first, count)), count)

    return lambda first, remaining: [], run_chunk


def _overlapping_chunk(chunks: Chunks, take: Take, *, jit_compile: bool) -> Chunk:
    """Returns functions that create the next batches while the steps of the previous ones run."""
    structure: list[Tensors] = []

    # A function, so that it is traced once although it is called in several places.
    @tf.function(autograph=False)
    def make_batches(first: tf.Tensor, remaining: tf.Tensor) -> list[tf.Tensor]:
        # XLA needs static shapes. Batches that a short piece does not use are ignored.
        count = chunks.length if jit_compile else tf.minimum(remaining, chunks.length)
        batches = chunks(first, count, 0)
        structure[:] = [batches]
        return tf.nest.flatten(batches)

    @tf.function(autograph=False, jit_compile=jit_compile or None)
    def piece(batches: list[tf.Tensor], count: tf.Tensor) -> None:
        _take_rows(take, tf.nest.pack_sequence_as(structure[0], batches), count)

    return make_batches, lambda batches, _, count: piece(batches, count)


def _take_rows(take: Take, batches: Tensors, count: tf.Tensor) -> None:
    """Runs a step on each of `count` batches."""

    def take_one(row: tf.Tensor) -> list[tf.Tensor]:
        take(batches, row)
        return [row + 1]

    # No `maximum_iterations`: XLA would need its value and compile again for each value.
    tf.while_loop(lambda row: row < count, take_one, [tf.zeros([], tf.int64)])


def row_of(batches: Tensors, row: tf.Tensor) -> Tensors:
    """Returns one of several batches of a replica: row `row` (int64 scalar) of tensors [k, ...]."""
    return tf.nest.map_structure(lambda tensor: tf.gather(tensor, row), batches)
