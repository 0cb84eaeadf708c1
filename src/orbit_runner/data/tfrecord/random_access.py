"""Reads records of TFRecord files by their index, in any order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from orbit_runner.data.images.stored import StoredImages
from orbit_runner.data.places import Places
from orbit_runner.data.stored_tensor import stored_tensor
from orbit_runner.data.tfrecord.bad_record import remember_source
from orbit_runner.data.tfrecord.framing import FRAME_BYTES
from orbit_runner.data.tfrecord.source import RecordStore

_BATCHES_AT_ONCE = 4


def add_records(source: StoredImages[RecordStore], columns: tf.data.Dataset) -> tf.data.Dataset:
    """Returns batches of columns with the column `record`: serialized examples, string [b].

    The batches must have the column `id`, the numbers of the records, int64 [b]. Each record is
    read on its own, and compared with its checksum.
    """
    find = RecordPlaces(source.store.files, source.places)
    indexes = source.store.indexes
    # It takes 8 bytes of memory per record.
    offsets = stored_tensor(np.concatenate([index.offsets for index in indexes]))
    sizes = np.array([len(index.offsets) for index in indexes], np.int64)
    firsts = stored_tensor(np.cumsum(sizes) - sizes)
    remember_source(source)

    def read(batch: dict[str, tf.Tensor]) -> tf.data.Dataset:
        file, place = find(batch["id"])
        index = tf.gather(firsts, file) + place
        starts, ends = tf.gather(offsets, index), tf.gather(offsets, index + 1)
        files = find.paths(file)
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
