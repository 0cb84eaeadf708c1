"""Batches that are functions of their steps: several computed in one call, and as datasets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.data.options import ENDLESS, PipelineOptions, apply_on_services
from orbit_runner.data.order.sharding import ReplicaSlices

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chunks:
    """The batches of an in-memory dataset."""

    # From positions in the sequence of examples, int64 [k, b], to nested tensors [k, b, ...].
    make: Callable[[tf.Tensor], Tensors]
    global_batch_size: int
    batch_size: int  # Examples per replica.
    length: int  # Number of batches to make in one call.
    nbytes: int  # Memory that the dataset takes.
    steps: int | None = None  # None if the batches never end.

    def __call__(
        self, first: tf.Tensor, count: int | tf.Tensor, replica: int | tf.Tensor
    ) -> Tensors:
        """Returns the batches of consecutive steps for one replica.

        They are nested tensors [count, batch_size, ...]. `first` (the first step) and `count` are
        int64 scalars.
        """
        steps = first + tf.range(count, dtype=tf.int64)
        shift = tf.cast(replica, tf.int64) * self.batch_size
        places = steps[:, tf.newaxis] * self.global_batch_size + shift
        return self.make(places + tf.range(self.batch_size, dtype=tf.int64))

    def batch_at(self, step: tf.Tensor) -> Tensors:
        """Returns the batch of one step for replica 0: nested tensors [batch_size, ...].

        `step` is an int64 scalar. If there is only one replica, this is the whole batch.
        """
        # The arrays are large, and in host memory.
        with tf.device("CPU:0"):
            return tf.nest.map_structure(lambda tensor: tensor[0], self(step, 1, 0))


def endless_dataset(
    chunks: Chunks, slices: ReplicaSlices, start_step: int | tf.Tensor, options: PipelineOptions
) -> tf.data.Dataset:
    """Returns an endless dataset of the batches for one replica.

    `start_step` is the step of the first batch. In a graph, it can be an int64 scalar tensor.
    """

    def make_chunk(first: tf.Tensor) -> Tensors:
        numbers = tf.range(first, first + chunks.length)
        return chunks.make(slices.positions(numbers, start_step))

    firsts = tf.data.Dataset.range(0, ENDLESS, chunks.length)
    batches = _unbatch(mapped_dataset(firsts, make_chunk, options), chunks.length, options)
    return options.apply_to(batches)


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

    dataset = mapped_dataset(tf.data.Dataset.range(0, count, length), make_chunk, options)
    batches = _unbatch(dataset.cache() if cache else dataset, length, options)
    return options.apply_to(batches, count)


def mapped_dataset(
    firsts: tf.data.Dataset, make_chunk: Callable[[tf.Tensor], Tensors], options: PipelineOptions
) -> tf.data.Dataset:
    """Returns a dataset of what a function makes of numbers, in the same order.

    No branch of the function may depend on a tensor.
    """
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
