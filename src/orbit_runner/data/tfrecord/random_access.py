"""Reads records of TFRecord files by their index, in any order."""

from __future__ import annotations

import os

import numpy as np
import tensorflow as tf

from orbit_runner.data.stored_tensor import stored_tensor
from orbit_runner.data.tfrecord.bad_record import remember_source
from orbit_runner.data.tfrecord.framing import FRAME_BYTES
from orbit_runner.data.tfrecord.source import RecordSource

_BATCHES_AT_ONCE = 4


def add_records(source: RecordSource, columns: tf.data.Dataset) -> tf.data.Dataset:
    """Returns batches of columns with the column `record`: serialized examples, string [b].

    The batches must have the column `id`, the numbers of the records, int64 [b]. Each record is
    read on its own, and compared with its checksum.
    """
    locate = _Locations(source)
    remember_source(source)

    def read(batch: dict[str, tf.Tensor]) -> tf.data.Dataset:
        files, starts, ends = locate(batch["id"])
        records = tf.data.Dataset.from_tensor_slices((files, starts, ends)).flat_map(_read_record)
        whole = tf.data.Dataset.from_tensors((batch, files, ends - starts))
        return tf.data.Dataset.zip((whole, records.batch(len(batch["id"])))).map(add)

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
    # The public class has no offset.
    variant = tf.raw_ops.TFRecordDatasetV2(
        filenames=file[tf.newaxis],
        compression_type="",
        buffer_size=end - start,
        byte_offsets=start[tf.newaxis],
    )
    dataset = tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))
    # Without this, the batch of a file that has become shorter would lack a record.
    return dataset.concatenate(tf.data.Dataset.from_tensors("")).take(1)


class _Locations:
    """The position of each record. It takes 8 bytes of memory per record."""

    def __init__(self, source: RecordSource) -> None:
        offsets = [index.offsets for index in source.indexes]
        blocks = source.blocks
        sizes = np.array([len(file_offsets) for file_offsets in offsets], np.int64)
        self._offsets = stored_tensor(np.concatenate(offsets))
        # From the number of a record to its place in the offsets of all files.
        shift = (np.cumsum(sizes) - sizes)[blocks.file] + blocks.place - blocks.first
        self._first, self._shift, self._file = (
            stored_tensor(column.astype(np.int64)) for column in (blocks.first, shift, blocks.file)
        )
        self._files = stored_tensor(np.array([os.fsencode(path) for path in source.files], object))

    def __call__(self, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the file, string [b], the first byte, and the end of each record, int64 [b]."""
        block = tf.searchsorted(self._first, ids, side="right") - 1
        place = ids + tf.gather(self._shift, block)
        starts, ends = (tf.gather(self._offsets, place + more) for more in (0, 1))
        return tf.gather(self._files, tf.gather(self._file, block)), starts, ends
