"""Reads TFRecord files: the records of an epoch, starting at any position, or by their indices."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from orbit_runner.data.order.epochs import NO_EXAMPLES, skip_gaps
from orbit_runner.data.order.records import RecordOrder
from orbit_runner.data.order.tf_arrays import TENSORFLOW
from orbit_runner.data.places import Places
from orbit_runner.data.stored_tensor import stored_tensor
from orbit_runner.data.tfrecord.bad_record import remember_source
from orbit_runner.data.tfrecord.framing import FRAME_BYTES
from orbit_runner.data.tfrecord.source import BLOCK_RECORDS, RecordImages

_BLOCKS_AT_ONCE = 8
_CHUNK_RECORDS = 1024
_CHUNK_BYTES = 2**24
_BATCHES_AT_ONCE = 4


class Reader:
    """Reads records in an order that depends on a seed, in chunks of whole windows.

    `shuffle_buffer_size` is the number of records of a shuffle window. If it is 0 or 1, records are
    in stored order. `excluded`, int64 [k], are the records to leave out, ascending; they are read,
    but not returned.
    """

    def __init__(
        self,
        source: RecordImages,
        seed: int,
        shuffle_buffer_size: int,
        excluded: np.ndarray = NO_EXAMPLES,
    ) -> None:
        remember_source(source, excluded)
        blocks = source.blocks()
        self.size = source.size
        self._order = RecordOrder(blocks.records, seed, shuffle_buffer_size, TENSORFLOW)
        self._excluded = stored_tensor(excluded)
        self._chunk = _chunk_length(self._order.window, int(blocks.length.sum()) / self.size)
        self._files = stored_tensor(np.array([os.fsencode(path) for path in source.files], object))
        columns = blocks.file, blocks.offset, blocks.length, blocks.records, blocks.first
        self._columns = [stored_tensor(column.astype(np.int64)) for column in columns]

    def rows(
        self, *, start: int | tf.Tensor, epochs: int, keep: Callable[[tf.Tensor], tf.Tensor]
    ) -> tf.data.Dataset:
        """Returns the dataset of records from position `start` to the beginning of epoch `epochs`.

        Positions count through all epochs. `keep` returns which positions (int64 [k]) to keep (bool
        [k]). An element has any length k, possibly 0: serialized records, string [k], their indices
        in stored order and their epochs, both int64 [k].
        """
        size = self.size - len(self._excluded)
        first_epoch, first_place = start // size, start % size

        def epoch_rows(epoch: tf.Tensor) -> tf.data.Dataset:
            gaps, place = None, first_place
            if len(self._excluded):
                gaps = tf.sort(self._order.places_of_epoch(self._excluded, epoch))
                place = skip_gaps(tf.reshape(tf.cast(place, tf.int64), [1]), gaps)[0]
            first = tf.cast(place // self._chunk * self._chunk, tf.int64)
            first = tf.where(epoch == first_epoch, first, np.int64(0))
            places = tf.data.Dataset.range(first, self.size, self._chunk)
            chunks = tf.data.Dataset.zip((places, self._read_chunks(epoch, first)))
            return chunks.map(lambda place, chunk: select(epoch, place, gaps, *chunk))

        def select(
            epoch: tf.Tensor,
            first: tf.Tensor,
            gaps: tf.Tensor | None,
            records: tf.Tensor,
            ids: tf.Tensor,
        ) -> tuple[tf.Tensor, ...]:
            places = first + tf.range(tf.size(ids, tf.int64))
            places, numbers = (places, places) if gaps is None else _close_gaps(places, gaps)
            positions = epoch * size + numbers
            kept = tf.boolean_mask(places, (positions >= start) & keep(positions))
            # Select and shuffle in one step, and before decoding, because a chunk may be large.
            index = self._order.unshuffled(kept, epoch) - first
            return tf.gather(records, index), tf.gather(ids, index), tf.fill(tf.shape(index), epoch)

        return tf.data.Dataset.range(first_epoch, epochs).flat_map(epoch_rows).prefetch(1)

    def _read_chunks(self, epoch: tf.Tensor, first: tf.Tensor) -> tf.data.Dataset:
        """Returns an epoch's chunks of records and their indices, from the place `first`."""
        blocks, starts = self._order.blocks(epoch)
        block = tf.searchsorted(starts, first[tf.newaxis], side="right")[0] - 1
        remaining = tf.data.Dataset.from_tensor_slices(blocks[block:])
        skips = tf.data.Dataset.from_tensors(first - starts[block])
        none = tf.data.Dataset.from_tensors(np.int64(0)).repeat()
        pairs = tf.data.Dataset.zip((remaining, skips.concatenate(none)))
        # Each block is one element, so the blocks stay in order. The option `deterministic` may
        # reorder batches, but here the order must be fixed: a record's place follows from it.
        pieces = pairs.interleave(
            self._read_block,
            cycle_length=_BLOCKS_AT_ONCE,
            num_parallel_calls=_BLOCKS_AT_ONCE,
            deterministic=True,
        )
        return pieces.rebatch(self._chunk)

    def _read_block(self, block: tf.Tensor, skip: tf.Tensor) -> tf.data.Dataset:
        """Returns a block without its first `skip` records: one element, records and indices."""
        # TensorFlow 2.20 crashes if `take` gets any output of `tf.unstack` except the first.
        file, offset, length, records, first = (tf.gather(c, block) for c in self._columns)
        dataset = _records_from(tf.gather(self._files, file), offset, length)

        def add_ids(data: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            message = ": has changed since its records were counted"
            named = [tf.gather(self._files, file) + message]
            assertion = tf.debugging.Assert(tf.size(data, tf.int64) == records - skip, named)
            with tf.control_dependencies([assertion]):
                return tf.identity(data), first + tf.range(skip, records)

        return dataset.take(records).skip(skip).batch(BLOCK_RECORDS).map(add_ids)


def _chunk_length(window: int, record_bytes: float) -> int:
    """Returns the number of records to read at once, in whole windows: each call takes time."""
    records = min(_CHUNK_RECORDS, int(_CHUNK_BYTES / record_bytes))
    return window * max(1, records // window)


def _close_gaps(places: tf.Tensor, gaps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the places that are not gaps, and their places without the gaps: int64 [m] each.

    `places` of the whole epoch, int64 [b], and `gaps`, int64 [k], are ascending.
    """
    below, upto = (
        tf.searchsorted(gaps, places, side=side, out_type=tf.int64) for side in ("left", "right")
    )
    others = tf.equal(below, upto)
    kept = tf.boolean_mask(places, others)
    return kept, kept - tf.boolean_mask(below, others)


def _records_from(file: tf.Tensor, offset: tf.Tensor, buffer_size: tf.Tensor) -> tf.data.Dataset:
    """Returns the dataset of the records of a file from a byte on."""
    # The public class has no offset. The op must be used in a function: outside of one, TensorFlow
    # 2.20 loses the offset when it serializes the dataset.
    variant = tf.raw_ops.TFRecordDatasetV2(
        filenames=file[tf.newaxis],
        compression_type="",
        buffer_size=buffer_size,
        byte_offsets=offset[tf.newaxis],
    )
    return tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))


def add_records(source: RecordImages, columns: tf.data.Dataset) -> tf.data.Dataset:
    """Returns batches of columns with the column `record`: serialized examples, string [b].

    The batches must have the column `id`, the numbers of the records, int64 [b]. Each record is
    read on its own, and compared with its checksum.
    """
    find = RecordPlaces(source.files, source.places)
    # It takes 8 bytes of memory per record.
    offsets = stored_tensor(np.concatenate([index.offsets for index in source.indexes]))
    sizes = np.array([len(index.offsets) for index in source.indexes], np.int64)
    firsts = stored_tensor(np.cumsum(sizes) - sizes)
    remember_source(source)

    def read(batch: dict[str, tf.Tensor]) -> tf.data.Dataset:
        file, place = find(batch["id"])
        index = tf.gather(firsts, file) + place
        starts, ends = tf.gather(offsets, index), tf.gather(offsets, index + 1)
        files = find.paths(file)
        records = tf.data.Dataset.from_tensor_slices((files, starts, ends)).flat_map(_read_record)
        batches = tf.data.Dataset.from_tensors((batch, files, ends - starts))
        return tf.data.Dataset.zip((batches, records.batch(len(batch["id"])))).map(add)

    def add(
        whole: tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor], records: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        batch, files, lengths = whole
        records = tf.ensure_shape(records, batch["id"].shape)
        expected = lengths - FRAME_BYTES
        wrong = tf.strings.length(records) != tf.cast(expected, tf.int32)
        changed = files[tf.argmax(wrong)] + ": has changed since its records were counted"
        with tf.control_dependencies([tf.debugging.Assert(~tf.reduce_any(wrong), [changed])]):
            return batch | {"record": tf.identity(records)}

    # Each batch is one element, so the batches stay in order. The option `deterministic` may
    # reorder them, but here the order must be fixed: it is that of the steps.
    return columns.interleave(
        read,
        cycle_length=_BATCHES_AT_ONCE,
        num_parallel_calls=_BATCHES_AT_ONCE,
        deterministic=True,
    )


def _read_record(file: tf.Tensor, start: tf.Tensor, end: tf.Tensor) -> tf.data.Dataset:
    """Returns the dataset of the record at byte `start` of a file, or of "" at the file's end."""
    dataset = _records_from(file, start, end - start)
    # Without this, the batch of a file that has become shorter would lack a record.
    return dataset.concatenate(tf.data.Dataset.from_tensors("")).take(1)


class RecordPlaces:
    """The file and the place of each record, in a graph."""

    def __init__(self, files: Sequence[Path], places: Places) -> None:
        self._starts = stored_tensor(places.starts)
        self._rows = None if places.rows is None else stored_tensor(places.rows)
        self._paths = stored_tensor(np.array([os.fsencode(path) for path in files], object))

    def __call__(self, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the index of the file, and the place in it, of records; all are int64 [k]."""
        rows = ids if self._rows is None else tf.gather(self._rows, ids)
        file = tf.searchsorted(self._starts, rows, side="right", out_type=tf.int64) - 1
        return file, rows - tf.gather(self._starts, file)

    def paths(self, files: tf.Tensor) -> tf.Tensor:
        """Returns the paths of files, string [k], by their indices, int64 [k]."""
        return tf.gather(self._paths, files)

    def names(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns names such as `train-00: record 3`, string [k], of records, int64 [k]."""
        files, places = self(ids)
        return tf.strings.join([self.paths(files), ": record ", tf.strings.as_string(places)])
