"""Pipelines of tf.data over pairs of sentences, in which a batch is a function of (seed, step)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.sampling.sharding import ReplicaSlices, count_eval_steps, replica_slices
from orbit_runner.data.service import apply_on_services
from orbit_runner.data.text.batches import Batch, PairReader
from orbit_runner.data.text.buckets import fixed_rows, plan_batches
from orbit_runner.data.text.order import BucketOrder, OncePerPair, Order, RowOrder
from orbit_runner.data.text.source import PairSource
from orbit_runner.errors import DataError

_ENDLESS = 2**62
_TRAINING = ("inputs", "targets", "share")


def train_pairs(
    source: PairSource,
    *,
    batch_tokens: int | None = None,
    global_batch_size: int | None = None,
    max_length: int,
    static_shapes: bool = False,
    rows_multiple: int = 8,
    seed: int,
    start_step: int | tf.Tensor = 0,
    shuffle: bool = True,
    input_context: tf.distribute.InputContext | None = None,
    options: PipelineOptions = PipelineOptions(),  # noqa: B008
    element: Callable[[Batch], Any] | None = None,
) -> tf.data.Dataset:
    """Makes the endless pipeline of one worker's training batches.

    The pairs of a step depend on `seed` and the step alone: not on where training started, nor on
    the number of replicas. It starts at any step as fast as at step 0.

    Args:
        source: The pairs, none longer than `max_length`.
        batch_tokens: Tokens of a side of a global batch, padding included; batches of as many
            sentences of about the same length as have room. With `static_shapes` as many sentences
            as have room at `max_length`.
        global_batch_size: Sentences of a global batch, where `batch_tokens` is None.
        max_length: The most tokens of a sentence, `EOS` included.
        static_shapes: Whether both sides are padded to `max_length` and all batches have as many
            sentences, as TPUs need; else to the longest of the global batch.
        rows_multiple: What the number of sentences of a global batch is a multiple of, where
            `batch_tokens` is given. The number of replicas has to divide it.
        seed: Seed of the order.
        start_step: The step of the first batch; in a graph, an int64 scalar tensor as well.
        shuffle: Whether each epoch has an order of its own; by length otherwise.
        input_context: Which slice of each batch to make; all of it if None.
        options: How tf.data runs it.
        element: Turns a batch into another structure of the same tensors.

    Returns:
        Batches for one replica: `inputs` int32 [b, ls] and `targets` int32 [b, lt], padded with 0
        and ended by `EOS`; and `share` float32 [b], rows by tokens of targets in the global batch:
        the mean over rows of `share` times the sum of a row's losses is the mean over all tokens,
        however rows are shared out. Rows of padding alone fill up the last batch of an epoch; they
        have no token of a target, and count as rows.

    Raises:
        DataError: The batch does not divide by the replicas, or is too small.
    """
    width = max_length if static_shapes else None
    rows = _rows(batch_tokens, global_batch_size, width, rows_multiple)
    slices = _train_slices(rows, rows_multiple, input_context)
    order = _train_order(source, rows, batch_tokens, rows_multiple, seed, shuffle)
    read = PairReader(source, order, width)

    def turn(number: tf.Tensor) -> Any:
        batch = read(start_step + slices.first_step + number * slices.step_stride, slices)
        found = {name: batch[name] for name in _TRAINING}
        return found if element is None else element(found)

    batches = _make_dataset(tf.data.Dataset.range(_ENDLESS), turn, options)
    # A finite set would make a distributed iterator ask all replicas every step whether it ended.
    endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    return batches.unbatch().apply(endless).with_options(options.tf_options())


def train_pairs_at(
    source: PairSource,
    *,
    batch_tokens: int | None = None,
    global_batch_size: int | None = None,
    max_length: int,
    static_shapes: bool = False,
    rows_multiple: int = 8,
    seed: int,
    shuffle: bool = True,
    element: Callable[[Batch], Any] | None = None,
) -> Callable[[tf.Tensor], Any]:
    """Makes what gives the batches that `train_pairs` gives, by the numbers of their steps.

    Args:
        source: The pairs, none longer than `max_length`.
        batch_tokens: As in `train_pairs`, and so the others.
        global_batch_size: Sentences of a batch, where `batch_tokens` is None.
        max_length: The most tokens of a sentence, `EOS` included.
        static_shapes: Whether all batches have one shape.
        rows_multiple: What the number of sentences is a multiple of.
        seed: Seed of the order.
        shuffle: Whether each epoch has an order of its own.
        element: Turns a batch into another structure of the same tensors.

    Returns:
        A function from the number of a step, int64 scalar, to its global batch.

    Raises:
        DataError: The batch is too small.
    """
    width = max_length if static_shapes else None
    rows = _rows(batch_tokens, global_batch_size, width, rows_multiple)
    slices = _train_slices(rows, rows_multiple, None)
    order = _train_order(source, rows, batch_tokens, rows_multiple, seed, shuffle)
    read = PairReader(source, order, width)

    def batch(step: tf.Tensor) -> Any:
        # The tokens lie in the memory of the host, and are many.
        with tf.device("CPU:0"):
            batch = read(step, slices)
            found = {name: batch[name][0] for name in _TRAINING}
        return found if element is None else element(found)

    return batch


def eval_pairs(
    source: PairSource,
    *,
    global_batch_size: int,
    max_length: int,
    static_shapes: bool = False,
    drop_remainder: bool = False,
    by_length: bool = True,
    input_context: tf.distribute.InputContext | None = None,
    options: PipelineOptions = PipelineOptions(),  # noqa: B008
    cache: bool = False,
    element: Callable[[Batch, tf.Tensor], Any] | None = None,
) -> tf.data.Dataset:
    """Makes the pipeline of one worker's evaluation batches: each pair once.

    Args:
        source: The pairs, none longer than `max_length`.
        global_batch_size: Sentences of a step on all replicas.
        max_length: The most tokens of a sentence, `EOS` included.
        static_shapes: Whether both sides are padded to `max_length`; else to the longest of the
            global batch.
        drop_remainder: Whether a last, part-filled batch is left out.
        by_length: Whether long sentences come first, so that batches hold little padding; in the
            order of the source otherwise.
        input_context: Which slice of each batch to make; all of it if None.
        options: How tf.data runs it.
        cache: Whether batches stay in memory after the first pass.
        element: Turns a batch and its weights into another structure of the same tensors.

    Returns:
        Pairs of a batch for one replica, `inputs` and `targets` as in training and `id` int64 [b],
        the number of the pair in the source; and float32 weights [b]. The last batch is filled up
        with its last pair at weight 0; all other weights are 1.

    Raises:
        DataError: The batch does not divide by the replicas, or no step is left.
    """
    slices = replica_slices(global_batch_size, input_context)
    steps = count_eval_steps(source.name, source.size, global_batch_size, drop_remainder)
    order = OncePerPair(source.lengths, global_batch_size, by_length=by_length)
    read = PairReader(source, order, max_length if static_shapes else None)

    def turn(number: tf.Tensor) -> Any:
        batch = read(slices.first_step + number * slices.step_stride, slices)
        found = {name: batch[name] for name in ("inputs", "targets", "id")}
        pair = found, tf.cast(batch["counts"], tf.float32)
        return pair if element is None else element(*pair)

    count = slices.elements(steps)
    turns = tf.data.Dataset.range(count // slices.replicas)
    batches = _make_dataset(turns, turn, options, cache=cache).unbatch()
    batches = batches.apply(tf.data.experimental.assert_cardinality(count))
    return batches.with_options(options.tf_options())


def _rows(
    batch_tokens: int | None, sentences: int | None, width: int | None, multiple: int
) -> int | None:
    """Returns the sentences of every global batch; None where they differ."""
    if batch_tokens is None:
        return sentences or 0
    if width is None:
        return None
    return fixed_rows(batch_tokens=batch_tokens, max_length=width, rows_multiple=multiple)


def _train_slices(
    rows: int | None, multiple: int, context: tf.distribute.InputContext | None
) -> ReplicaSlices:
    replicas = context.num_replicas_in_sync if context else 1
    if rows is None and multiple % replicas:
        raise DataError(
            f"got {multiple}, expected a multiple of {replicas}, the number of replicas",
            field="batch_rows_multiple",
        )
    return replica_slices(multiple if rows is None else rows, context)


def _train_order(
    source: PairSource,
    rows: int | None,
    batch_tokens: int | None,
    multiple: int,
    seed: int,
    shuffle: bool,
) -> Order:
    if rows is not None:
        return RowOrder(source.size, rows, seed, shuffle=shuffle)
    plan = plan_batches(source, batch_tokens=batch_tokens or 0, rows_multiple=multiple)
    return BucketOrder(plan, seed, shuffle=shuffle)


def _make_dataset(
    turns: tf.data.Dataset,
    turn: Callable[[tf.Tensor], Any],
    options: PipelineOptions,
    *,
    cache: bool = False,
) -> tf.data.Dataset:
    # No branch in it depends on a tensor, and to convert it takes longer than to trace it.
    plain = tf.autograph.experimental.do_not_convert(turn)
    batches = apply_on_services(
        options.services, turns, lambda d: d.map(plain, num_parallel_calls=tf.data.AUTOTUNE)
    )
    if cache:
        batches = batches.cache()
    ahead = tf.data.AUTOTUNE if options.prefetch is None else options.prefetch
    return batches.prefetch(ahead) if ahead else batches
