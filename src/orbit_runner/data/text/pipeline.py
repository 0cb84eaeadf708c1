"""Datasets of sentence pairs, in which a batch is a function of (seed, step)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from orbit_runner.data.chunks import mapped_dataset
from orbit_runner.data.options import ENDLESS, PipelineOptions
from orbit_runner.data.order.sharding import ReplicaSlices, count_eval_steps, replica_slices
from orbit_runner.data.order.tf_arrays import TENSORFLOW
from orbit_runner.data.stored_tensor import stored_tensor
from orbit_runner.data.text.order import PairBatching, PairOrder, SinglePassOrder
from orbit_runner.data.text.source import PairSource, Ragged
from orbit_runner.errors import DataError

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors


class PaddedRows:
    """The rows of one side of all pairs."""

    def __init__(self, rows: Ragged) -> None:
        self._values, self._offsets = stored_tensor(rows.values), stored_tensor(rows.offsets)

    def lengths(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the lengths of the rows `ids`, both int64 [b]; -1 is a row without tokens."""
        ends = tf.gather(self._offsets, ids + 1)
        return tf.where(ids < 0, np.int64(0), ends - tf.gather(self._offsets, tf.maximum(ids, 0)))

    def __call__(self, ids: tf.Tensor, width: int | tf.Tensor) -> tf.Tensor:
        """Returns the rows `ids`, padded at the end with 0: int32 [b, width].

        `ids` is int64 [b]; -1 is a row without tokens. `width` must not be less than the length of
        a row.
        """
        columns = tf.range(tf.cast(width, tf.int64))
        inside = columns < self.lengths(ids)[:, tf.newaxis]
        firsts = tf.gather(self._offsets, tf.maximum(ids, 0))
        places = tf.where(inside, firsts[:, tf.newaxis] + columns, np.int64(0))
        return tf.where(inside, tf.gather(self._values, places), 0)


Batch = dict[str, tf.Tensor]


class PairReader:
    """Reads pairs in a given order.

    All batches have `width` columns. If it is None, each side has as many as its longest row in the
    global batch. Raises DataError with the field `max_length` if a sentence is longer than `width`.
    """

    def __init__(self, source: PairSource, order: PairOrder, width: int | None) -> None:
        longest = int(source.lengths.max())
        if width is not None and longest > width:
            raise DataError(
                f"{source.name}: got {width} tokens, expected at least {longest}, the length "
                "of the longest sentence",
                field="max_length",
                code="out-of-range",
            )
        self._order = order
        self._width = width
        self._sides = {"inputs": PaddedRows(source.sources), "targets": PaddedRows(source.targets)}

    def __call__(self, step: tf.Tensor, slices: ReplicaSlices) -> Batch:
        """Returns the rows of a pipeline's replicas in the batch of a step, an int64 scalar.

        The result has `inputs`, int32 [replicas, b, ls], `targets`, int32 [replicas, b, lt],
        `share`, float32 [replicas, b], the number of rows divided by the number of target tokens of
        the global batch, `id`, int64 [replicas, b], the indices of the pairs, and `counts`, bool
        [replicas, b], false for rows of padding.
        """
        ids, counts = self._order(step)
        sharers = slices.global_batch_size // slices.batch_size
        share = (
            tf.size(ids) // sharers
            if self._order.row_count is None
            else self._order.row_count // sharers
        )
        first = slices.first_replica * share
        own = slice(first, first + slices.replicas * share)
        batch = {"id": ids[own], "counts": counts[own]}
        batch["share"] = tf.fill(tf.shape(batch["id"]), self._share(ids))
        for name, side in self._sides.items():
            # The width of the global batch, so that results are the same for all replica counts.
            width = self._width
            if width is None:
                width = tf.reduce_max(side.lengths(ids))
                if self._order.may_be_empty:
                    width = tf.maximum(width, 1)
            batch[name] = side(ids[own], width)
        return {
            name: _split_by_replica(rows, slices.replicas, share) for name, rows in batch.items()
        }

    def _share(self, ids: tf.Tensor) -> tf.Tensor:
        tokens = tf.reduce_sum(self._sides["targets"].lengths(ids))
        rows, tokens = tf.cast(tf.size(ids), tf.float32), tf.cast(tokens, tf.float32)
        return tf.math.divide_no_nan(rows, tokens) if self._order.may_be_empty else rows / tokens


def _split_by_replica(rows: tf.Tensor, replicas: int, share: int | tf.Tensor) -> tf.Tensor:
    columns = [tf.shape(rows)[1] if size is None else size for size in rows.shape[1:]]
    return tf.reshape(rows, [replicas, share, *columns])


_TRAINING = ("inputs", "targets", "share")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class TrainingPairs(PairBatching):
    """The batches of training.

    The pairs of a step depend only on `seed` and the step, not on the step at which training
    started or on the number of replicas. The last batch of an epoch is padded with empty rows,
    which have no target tokens but count as rows.

    Attributes:
        element: A function that converts a batch into another structure of the same tensors.
    """

    element: Callable[[Batch], Tensors] | None = None

    def dataset(
        self,
        *,
        start_step: int | tf.Tensor = 0,
        input_context: tf.distribute.InputContext | None = None,
        options: PipelineOptions = PipelineOptions(),
    ) -> tf.data.Dataset:
        """Returns the infinite dataset of one worker's training batches.

        An element is a batch for one replica: `inputs`, int32 [b, ls], and `targets`, int32 [b,
        lt], which end with `EOS` and are padded with 0; and `share`, float32 [b], the number of
        rows divided by the number of target tokens of the global batch. The mean over rows of
        `share` times the sum of a row's losses is the mean over all tokens, no matter how rows are
        distributed over replicas. If `input_context` is None, an element is the global batch.

        Starting at a later step takes no longer than starting at step 0. In a graph, `start_step`
        may be an int64 scalar tensor. Raises DataError if the batch is too small or cannot be
        divided by the number of replicas.
        """
        slices = self._slices(input_context)
        read = self._reader()

        def make_batches(number: tf.Tensor) -> Tensors:
            batch = read(start_step + slices.first_step + number * slices.step_stride, slices)
            return self._element({name: batch[name] for name in _TRAINING})

        batches = mapped_dataset(tf.data.Dataset.range(ENDLESS), make_batches, options)
        return options.apply_to(options.add_prefetch(batches).unbatch())

    def batch_at(self) -> Callable[[tf.Tensor], Tensors]:
        """Returns a function from a step, an int64 scalar, to its global batch.

        Raises DataError if the batch is too small.
        """
        slices = self._slices(None)
        read = self._reader()

        def read_batch(step: tf.Tensor) -> Tensors:
            # The tokens are in host memory, and are too many to copy to a device.
            with tf.device("CPU:0"):
                batch = read(step, slices)
                return self._element({name: batch[name][0] for name in _TRAINING})

        return read_batch

    def _element(self, batch: Batch) -> Tensors:
        return batch if self.element is None else self.element(batch)

    def _slices(self, context: tf.distribute.InputContext | None) -> ReplicaSlices:
        replicas = context.num_replicas_in_sync if context else 1
        rows, multiple = self.rows, self.rows_multiple
        if rows is None and multiple % replicas:
            raise DataError(
                f"got {multiple}, expected a multiple of {replicas}, the number of replicas",
                field="batch_rows_multiple",
                code="not-divisible",
            )
        return replica_slices(multiple if rows is None else rows, context)

    def _reader(self) -> PairReader:
        width = self.max_length if self.static_shapes else None
        return PairReader(self.source, self.order(TENSORFLOW), width)


def eval_pairs(
    source: PairSource,
    *,
    global_batch_size: int,
    max_length: int,
    static_shapes: bool = False,
    drop_remainder: bool = False,
    input_context: tf.distribute.InputContext | None = None,
    options: PipelineOptions = PipelineOptions(),
    cache: bool = False,
    element: Callable[[Batch, tf.Tensor], Tensors] | None = None,
) -> tf.data.Dataset:
    """Returns the dataset of one worker's evaluation batches: each pair once.

    An element is a pair of a batch for one replica and float32 weights [b]; `element` may convert
    it into another structure of the same tensors. The batch has `inputs` and `targets` as in
    training, and `id`, int64 [b], the indices of the pairs in the source. The last batch is
    padded with its last pair, whose weight is 0; all other weights are 1. Long sentences come
    first, so that batches have little padding.

    No sentence may be longer than `max_length`, including `EOS`. If `static_shapes` is true, both
    sides are padded to that length; otherwise to their longest sentence in the global batch. If
    `cache` is true, batches are kept in memory after the first pass. Raises DataError if the global
    batch size is not a multiple of the number of replicas, or if there is no step.
    """
    slices = replica_slices(global_batch_size, input_context)
    steps = count_eval_steps(source.name, source.size, global_batch_size, drop_remainder)
    order = SinglePassOrder(source.lengths, global_batch_size, TENSORFLOW)
    read = PairReader(source, order, max_length if static_shapes else None)

    def make_batches(number: tf.Tensor) -> Tensors:
        batch = read(slices.first_step + number * slices.step_stride, slices)
        tensors = {name: batch[name] for name in ("inputs", "targets", "id")}
        pair = tensors, tf.cast(batch["counts"], tf.float32)
        return pair if element is None else element(*pair)

    count = slices.elements(steps)
    turns = tf.data.Dataset.range(count // slices.replicas)
    batches = mapped_dataset(turns, make_batches, options)
    if cache:
        batches = batches.cache()
    return options.apply_to(options.add_prefetch(batches).unbatch(), count)
