"""Reads the records of an epoch from any place on."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from orbit_runner.data.table import on_cpu
from orbit_runner.data.tfrecord.framing import BLOCK_RECORDS
from orbit_runner.data.tfrecord.order import BlockOrder, WindowShuffle
from orbit_runner.data.tfrecord.source import RecordSource

_BLOCKS_AT_ONCE = 8
_CHUNK_RECORDS = 1024
_CHUNK_BYTES = 2**24


class Reader:
    """Reads records in the order of a seed, a chunk of whole windows at a time.

    Attributes:
        size: Number of records.
    """

    def __init__(self, source: RecordSource, seed: int, shuffle_buffer_size: int) -> None:
        """Lays out the files.

        Args:
            source: The records.
            seed: Seed of the order.
            shuffle_buffer_size: Records of a window that is shuffled; 0 or 1: in stored order.
        """
        blocks, self.size = source.blocks, source.size
        window = min(max(1, shuffle_buffer_size), self.size)
        self._order = BlockOrder(blocks.records, seed, shuffle=shuffle_buffer_size > 1)
        self._shuffle = WindowShuffle(self.size, window, seed)
        self._chunk = _chunk_length(window, int(blocks.length.sum()) / self.size)
        self._files = on_cpu(np.array([os.fsencode(path) for path in source.files], object))
        columns = blocks.file, blocks.offset, blocks.length, blocks.records, blocks.first
        self._columns = [on_cpu(column.astype(np.int64)) for column in columns]

    def rows(
        self, *, start: int | tf.Tensor, epochs: int, keep: Callable[[tf.Tensor], tf.Tensor]
    ) -> tf.data.Dataset:
        """Streams the records from a position on.

        Args:
            start: Position of the first, counted through all epochs.
            epochs: The epoch to end before.
            keep: Tells which positions (int64 [k]) to keep, bool [k]; all the others are dropped.

        Returns:
            Pieces of any length k, possibly 0: serialized records (string [k]), their numbers in
            stored order (int64 [k]) and their epochs (int64 [k]).
        """
        first_epoch = start // self.size
        first_place = start % self.size // self._chunk * self._chunk

        def epoch_rows(epoch: tf.Tensor) -> tf.data.Dataset:
            first = tf.where(epoch == first_epoch, tf.cast(first_place, tf.int64), np.int64(0))
            places = tf.data.Dataset.range(first, self.size, self._chunk)
            chunks = tf.data.Dataset.zip((places, self._chunks(epoch, first)))
            return chunks.map(lambda place, chunk: select(epoch, place, *chunk))

        def select(
            epoch: tf.Tensor, first: tf.Tensor, records: tf.Tensor, ids: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            places = first + tf.range(tf.size(ids, tf.int64))
            positions = epoch * self.size + places
            kept = tf.boolean_mask(places, (positions >= start) & keep(positions))
            # Here, before anything is decoded, and once: a chunk may be large.
            index = self._shuffle(kept, epoch) - first
            return tf.gather(records, index), tf.gather(ids, index), tf.fill(tf.shape(index), epoch)

        return tf.data.Dataset.range(first_epoch, epochs).flat_map(epoch_rows).prefetch(1)

    def _chunks(self, epoch: tf.Tensor, first: tf.Tensor) -> tf.data.Dataset:
        """Reads an epoch's row of blocks from a place on, in chunks of records and numbers."""
        blocks, starts = self._order(epoch)
        block = tf.searchsorted(starts, first[tf.newaxis], side="right")[0] - 1
        left = tf.data.Dataset.from_tensor_slices(blocks[block:])
        skips = tf.data.Dataset.from_tensors(first - starts[block])
        none = tf.data.Dataset.from_tensors(np.int64(0)).repeat()
        pairs = tf.data.Dataset.zip((left, skips.concatenate(none)))
        # Each gives one element, so the blocks stay in order; `deterministic` in the options may
        # mix batches, but numbers and places of records must never part.
        pieces = pairs.interleave(
            self._block,
            cycle_length=_BLOCKS_AT_ONCE,
            num_parallel_calls=_BLOCKS_AT_ONCE,
            deterministic=True,
        )
        return pieces.rebatch(self._chunk)

    def _block(self, block: tf.Tensor, skip: tf.Tensor) -> tf.data.Dataset:
        """Reads one block without its first records, as one element of records and numbers."""
        # Not by `tf.unstack`: TensorFlow 2.20 crashes on a `take` of any but its first output.
        file, offset, length, records, first = (tf.gather(c, block) for c in self._columns)
        # The public class has no offset. Within a function alone: outside of one TensorFlow 2.20
        # forgets the offset when it writes the data set down.
        variant = tf.raw_ops.TFRecordDatasetV2(
            filenames=tf.gather(self._files, file)[tf.newaxis],
            compression_type="",
            buffer_size=length,
            byte_offsets=offset[tf.newaxis],
        )
        found = tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))

        def numbered(data: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            message = ": has changed since its records were counted"
            named = [tf.gather(self._files, file) + message]
            whole = tf.debugging.Assert(tf.size(data, tf.int64) == records - skip, named)
            with tf.control_dependencies([whole]):
                return tf.identity(data), first + tf.range(skip, records)

        return found.take(records).skip(skip).batch(BLOCK_RECORDS).map(numbered)


def _chunk_length(window: int, record_bytes: float) -> int:
    """Returns how many records to read at once: whole windows, for a call costs some time too."""
    records = min(_CHUNK_RECORDS, int(_CHUNK_BYTES / record_bytes))
    return window * max(1, records // window)
