"""tf.data pipelines over batches that are functions of their steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.order.sharding import ReplicaSlices
from orbit_runner.data.service import apply_on_services
from orbit_runner.data.step_batches import Chunks

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbit_runner.utils.types import Tensors

_ENDLESS = 2**62


def endless_dataset(
    chunks: Chunks, slices: ReplicaSlices, start_step: int | tf.Tensor, options: PipelineOptions
) -> tf.data.Dataset:
    """Returns an endless dataset of the batches for one replica.

    `start_step` is the step of the first batch. In a graph, it can be an int64 scalar tensor.
    """

    def make_chunk(first: tf.Tensor) -> Tensors:
        numbers = tf.range(first, first + chunks.length)
        return chunks.make(slices.positions(numbers, start_step))

    firsts = tf.data.Dataset.range(0, _ENDLESS, chunks.length)
    batches = _unbatch(_make_dataset(firsts, make_chunk, options), chunks.length, options)
    # With a finite dataset, a distributed iterator would check in each step whether the data of any
    # replica has ended.
    batches = batches.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
    return batches.with_options(options.tf_options())


def one_pass_dataset(
    chunks: Chunks, slices: ReplicaSlices, options: PipelineOptions, *, cache: bool
) -> tf.data.Dataset:
    """Returns a dataset of one pass over the batches for one replica.

    If `cache` is True, the batches stay in memory after the first pass.
    """
    count = slices.elements(chunks.steps or 0)
    length = chunks.length

    def make_chunk(first: tf.Tensor) -> Tensors:
        return chunks.make(slices.positions(tf.range(first, tf.minimum(first + length, count))))

    dataset = _make_dataset(tf.data.Dataset.range(0, count, length), make_chunk, options)
    batches = _unbatch(dataset.cache() if cache else dataset, length, options)
    batches = batches.apply(tf.data.experimental.assert_cardinality(count))
    return batches.with_options(options.tf_options())


def _make_dataset(
    firsts: tf.data.Dataset, make_chunk: Callable[[tf.Tensor], Tensors], options: PipelineOptions
) -> tf.data.Dataset:
    # AutoGraph has nothing to convert here, and would take a second at the start.
    plain = tf.autograph.experimental.do_not_convert(make_chunk)
    return apply_on_services(
        options.services, firsts, lambda d: d.map(plain, num_parallel_calls=tf.data.AUTOTUNE)
    )


def _unbatch(dataset: tf.data.Dataset, length: int, options: PipelineOptions) -> tf.data.Dataset:
    # Prefetch before `unbatch`: prefetching single small batches costs more than splitting chunks.
    if options.prefetch is None:
        dataset = dataset.prefetch(tf.data.AUTOTUNE)
    elif options.prefetch:
        dataset = dataset.prefetch(-(-options.prefetch // length))
    return dataset.unbatch()
