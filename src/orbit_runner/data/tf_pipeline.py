"""Pipelines of tf.data over batches that are functions of their steps."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.sampling.sharding import ReplicaSlices
from orbit_runner.data.service import apply_on_services
from orbit_runner.data.step_batches import Chunks

_ENDLESS = 2**62


def endless(
    chunks: Chunks, slices: ReplicaSlices, start_step: int | tf.Tensor, options: PipelineOptions
) -> tf.data.Dataset:
    """Makes a pipeline of batches that never end.

    Args:
        chunks: The batches.
        slices: Which of them this pipeline makes.
        start_step: The step of the first; in a graph, an int64 scalar tensor as well.
        options: How tf.data runs it.

    Returns:
        Batches for one replica.
    """

    def chunk(first: tf.Tensor) -> Any:
        numbers = tf.range(first, first + chunks.length)
        return chunks.make(slices.positions(numbers, start_step))

    firsts = tf.data.Dataset.range(0, _ENDLESS, chunks.length)
    batches = _unbatch(_make_dataset(firsts, chunk, options), chunks.length, options)
    # A finite set would make a distributed iterator ask all replicas every step whether it ended.
    batches = batches.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
    return batches.with_options(options.tf_options())


def one_pass(
    chunks: Chunks, slices: ReplicaSlices, options: PipelineOptions, *, cache: bool
) -> tf.data.Dataset:
    """Makes a pipeline of batches that end.

    Args:
        chunks: The batches, `steps` of them.
        slices: Which of them this pipeline makes.
        options: How tf.data runs it.
        cache: Whether batches stay in memory after the first pass.

    Returns:
        Batches for one replica.
    """
    count, length = slices.elements(chunks.steps or 0), chunks.length

    def chunk(first: tf.Tensor) -> Any:
        return chunks.make(slices.positions(tf.range(first, tf.minimum(first + length, count))))

    made = _make_dataset(tf.data.Dataset.range(0, count, length), chunk, options)
    batches = _unbatch(made.cache() if cache else made, length, options)
    batches = batches.apply(tf.data.experimental.assert_cardinality(count))
    return batches.with_options(options.tf_options())


def _make_dataset(firsts: tf.data.Dataset, chunk: Any, options: PipelineOptions) -> tf.data.Dataset:
    # There is nothing in it for AutoGraph to convert, which would take a second at the start.
    plain = tf.autograph.experimental.do_not_convert(chunk)
    return apply_on_services(
        options.services, firsts, lambda d: d.map(plain, num_parallel_calls=tf.data.AUTOTUNE)
    )


def _unbatch(made: tf.data.Dataset, length: int, options: PipelineOptions) -> tf.data.Dataset:
    # Prefetched before `unbatch`: handing over single small batches costs more than cutting them.
    if options.prefetch is None:
        made = made.prefetch(tf.data.AUTOTUNE)
    elif options.prefetch:
        made = made.prefetch(-(-options.prefetch // length))
    return made.unbatch()
