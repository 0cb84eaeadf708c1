"""Loops that create several batches at once inside the graph, without an iterator or a pipeline.

A loop of 14 steps, with chunks of 4 and a record every 6 steps:

    step      1   2   3   4   5   6   7   8   9  10  11  12  13  14
    chunk    [ batches 1–4 ] [ 5–6 ] [ batches 7–10 ] [11–12] [13–14]
    record                         ▲                        ▲

The batches of a chunk are created by one call. A chunk ends where a record does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from orbit_runner.data.step_batches import Chunks
from orbit_runner.train.loops.loop_pieces import Loop
from orbit_runner.train.loops.recorder import Recorder

if TYPE_CHECKING:
    from orbit_runner.train.loops.loop_pieces import WhileArguments
    from orbit_runner.utils.types import Tensors


Take = Callable[[Any, tf.Tensor], None]


def chunked_loop(
    chunks: Chunks,
    strategy: tf.distribute.Strategy,
    take: Take,
    *,
    take_last: Take | None = None,
    recorder: Recorder | None = None,
    jit_compile: bool = False,
) -> Loop:
    """Returns a graph function that runs steps, with the arguments of a `Loop`; it has no iterator.

    `take` runs a step on all replicas; its arguments are the batches of several steps and the row
    to use. `take_last` runs the step after them, if there is one. With `jit_compile`, XLA compiles
    as many steps as batches are created at once. If a GPU stores the dataset, it also compiles what
    creates the batches.
    """
    if chunks.on_gpu:
        return _compiled_loop(chunks, take, recorder)
    if strategy.num_replicas_in_sync == 1:
        return _overlapping_loop(chunks, take, take_last, recorder, jit_compile=jit_compile)

    def make_batches(first: tf.Tensor, count: tf.Tensor) -> Tensors:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return chunks(first, count, replica)

    @tf.function(autograph=False)
    def loop(_: object, first: tf.Tensor, steps: tf.Tensor) -> None:
        def take_chunk(done: tf.Tensor) -> list[tf.Tensor]:
            count = tf.minimum(_remaining_steps(first, done, steps, recorder), chunks.length)
            batches = strategy.run(make_batches, args=(first + done, count))
            tf.while_loop(*_row_loop(take, batches, count))
            _record(recorder, first + done + count)
            return [done + count]

        _start(recorder, first)
        tf.while_loop(lambda done: done < steps, take_chunk, [tf.zeros([], tf.int64)])
        if take_last is not None:
            batches = strategy.run(make_batches, args=(first + steps, tf.ones([], tf.int64)))
            take_last(batches, tf.zeros([], tf.int64))

    return loop


def _compiled_loop(chunks: Chunks, take: Take, recorder: Recorder | None) -> Loop:
    """Returns a loop that runs one program of XLA for each chunk, which also creates its batches.

    On a GPU, creating batches and running steps would not overlap.
    """

    @tf.function(autograph=False, jit_compile=True)
    def piece(first: tf.Tensor, count: tf.Tensor) -> None:
        # XLA needs static shapes. Batches that a short piece does not use are ignored.
        with tf.name_scope("make_batches"):  # for readers of a trace
            batches = chunks(first, chunks.length, 0)
        tf.while_loop(*_row_loop(take, batches, count))

    @tf.function(autograph=False)
    def loop(_: object, first: tf.Tensor, steps: tf.Tensor) -> None:
        def take_chunk(done: tf.Tensor) -> list[tf.Tensor]:
            count = tf.minimum(_remaining_steps(first, done, steps, recorder), chunks.length)
            piece(first + done, count)
            _record(recorder, first + done + count)
            return [done + count]

        _start(recorder, first)
        tf.while_loop(lambda done: done < steps, take_chunk, [tf.zeros([], tf.int64)])

    return loop


def _overlapping_loop(
    chunks: Chunks,
    take: Take,
    take_last: Take | None,
    recorder: Recorder | None,
    *,
    jit_compile: bool,
) -> Loop:
    """Returns a loop that creates the next batches while it runs the steps of the previous ones."""
    structure: list[Tensors] = []

    # A function, so that it is traced once although it is called in several places.
    @tf.function(autograph=False)
    def make_batches(first: tf.Tensor, left: tf.Tensor) -> list[tf.Tensor]:
        # XLA needs static shapes. Batches that a short piece does not use are ignored.
        count = chunks.length if jit_compile else tf.minimum(left, chunks.length)
        batches = chunks(first, count, 0)
        structure[:] = [batches]
        return tf.nest.flatten(batches)

    @tf.function(autograph=False, jit_compile=jit_compile or None)
    def piece(batches: list[tf.Tensor], count: tf.Tensor) -> None:
        rows = tf.nest.pack_sequence_as(structure[0], batches)
        tf.while_loop(*_row_loop(take, rows, count))

    @tf.function(autograph=False)
    def loop(_: object, first: tf.Tensor, steps: tf.Tensor) -> None:
        def take_chunk(
            done: tf.Tensor, batches: list[tf.Tensor]
        ) -> tuple[tf.Tensor, list[tf.Tensor]]:
            after = done + tf.minimum(_remaining_steps(first, done, steps, recorder), chunks.length)
            following = make_batches(first + after, _remaining_steps(first, after, steps, recorder))
            piece(batches, after - done)
            _record(recorder, first + after)
            return after, following

        _start(recorder, first)
        none = tf.zeros([], tf.int64)
        batches = make_batches(first, _remaining_steps(first, none, steps, recorder))
        sizes = [tf.TensorShape([None, *tensor.shape[1:]]) for tensor in batches]
        tf.while_loop(
            lambda done, _: done < steps,
            take_chunk,
            (none, batches),
            shape_invariants=(none.shape, sizes),
        )
        if take_last is not None:
            batches = make_batches(first + steps, tf.ones([], tf.int64))
            take_last(tf.nest.pack_sequence_as(structure[0], batches), none)

    return loop


def _remaining_steps(
    first: tf.Tensor, done: tf.Tensor, steps: tf.Tensor, recorder: Recorder | None
) -> tf.Tensor:
    """Returns the steps until the loop or the current record ends."""
    left = steps - done
    return left if recorder is None else tf.minimum(left, recorder.steps_left(first + done))


def _start(recorder: Recorder | None, step: tf.Tensor) -> None:
    if recorder is not None:
        recorder.start(step)


def _record(recorder: Recorder | None, step: tf.Tensor) -> None:
    if recorder is not None:
        recorder.record(step)


def _row_loop(take: Take, batches: Tensors, count: tf.Tensor) -> WhileArguments:
    """Returns the arguments of the `tf.while_loop` that runs a step on each of `count` batches."""

    def take_one(row: tf.Tensor) -> list[tf.Tensor]:
        take(batches, row)
        return [row + 1]

    # No `maximum_iterations`: XLA would need its value and compile again for each value.
    return lambda row: row < count, take_one, [tf.zeros([], tf.int64)]


def row_of(batches: Tensors, row: tf.Tensor) -> Tensors:
    """Returns one of several batches of a replica: row `row` (int64 scalar) of tensors [k, ...]."""
    return tf.nest.map_structure(lambda tensor: tf.gather(tensor, row), batches)
