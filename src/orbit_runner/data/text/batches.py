"""Reads the batch of a step, or the rows of it that some replicas take."""

from __future__ import annotations

import tensorflow as tf

from orbit_runner.data.sampling.sharding import ReplicaSlices
from orbit_runner.data.text.order import Order
from orbit_runner.data.text.padding import PaddedRows
from orbit_runner.data.text.source import PairSource
from orbit_runner.errors import DataError

Batch = dict[str, tf.Tensor]


class PairReader:
    """Reads pairs in an order."""

    def __init__(self, source: PairSource, order: Order, width: int | None) -> None:
        """Takes the pairs into tensors.

        Args:
            source: The pairs.
            order: Which make a batch.
            width: Columns of all batches; as many as the longest row of a side has if None.

        Raises:
            DataError: A sentence is longer than that; field `max_length`.
        """
        longest = int(source.lengths.max())
        if width is not None and longest > width:
            raise DataError(
                f"{source.name}: got {width} tokens, expected at least {longest}, those of the "
                "longest sentence",
                field="max_length",
            )
        self._order, self._width = order, width
        self._sides = {"inputs": PaddedRows(source.sources), "targets": PaddedRows(source.targets)}

    def __call__(self, step: tf.Tensor, slices: ReplicaSlices) -> Batch:
        """Reads the rows of a pipeline's replicas.

        Args:
            step: int64 scalar.
            slices: Which they are.

        Returns:
            For each replica of the pipeline: `inputs` int32 [replicas, b, ls], `targets` int32
            [replicas, b, lt], `share` float32 [replicas, b], rows by tokens of targets in the
            global batch, `id` int64 [replicas, b], the numbers of the pairs, and `counts` bool
            [replicas, b], which rows count.
        """
        ids, counts = self._order(step)
        sharers = slices.global_batch_size // slices.batch_size
        share = tf.size(ids) // sharers if self._order.rows is None else self._order.rows // sharers
        first = slices.first_replica * share
        own = slice(first, first + slices.replicas * share)
        found = {"id": ids[own], "counts": counts[own]}
        found["share"] = tf.fill(tf.shape(found["id"]), self._share(ids))
        for name, side in self._sides.items():
            # Of the global batch, so that no replica's numbers depend on how many there are.
            width = tf.reduce_max(side.lengths(ids)) if self._width is None else self._width
            found[name] = side(ids[own], width)
        return {name: _split(rows, slices.replicas, share) for name, rows in found.items()}

    def _share(self, ids: tf.Tensor) -> tf.Tensor:
        tokens = tf.reduce_sum(self._sides["targets"].lengths(ids))
        return tf.cast(tf.size(ids), tf.float32) / tf.cast(tokens, tf.float32)


def _split(rows: tf.Tensor, replicas: int, share: int | tf.Tensor) -> tf.Tensor:
    columns = [tf.shape(rows)[1] if size is None else size for size in rows.shape[1:]]
    return tf.reshape(rows, [replicas, share, *columns])
