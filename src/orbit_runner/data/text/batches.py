"""Reads the batch of a step, or the rows of it that belong to some replicas."""

from __future__ import annotations

import tensorflow as tf

from orbit_runner.data.order.sharding import ReplicaSlices
from orbit_runner.data.text.order import PairOrder
from orbit_runner.data.text.padding import PaddedRows
from orbit_runner.data.text.source import PairSource
from orbit_runner.errors import DataError

Batch = dict[str, tf.Tensor]


class PairReader:
    """Reads pairs in a given order.

    All batches have `width` columns. If it is None, the order decides; if it does not, each side
    has as many as its longest row in the global batch. Raises DataError with the field `max_length`
    if a sentence is longer than `width`.
    """

    def __init__(self, source: PairSource, order: PairOrder, width: int | None) -> None:
        longest = int(source.lengths.max())
        if width is not None and longest > width:
            raise DataError(
                f"{source.name}: got {width} tokens, expected at least {longest}, the length "
                "of the longest sentence",
                field="max_length",
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
        ids, counts, step_width = self._order(step)
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
            width = step_width if self._width is None else self._width
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
