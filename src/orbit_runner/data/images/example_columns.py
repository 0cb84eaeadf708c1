"""The columns of a batch (numbers, labels, raw images) before its images are decoded."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from orbit_runner.data.array_record.pipeline import add_records
from orbit_runner.data.array_record.source import ArrayRecordSource
from orbit_runner.data.images.decode_errors import zero_or_raise
from orbit_runner.data.images.files import FileSource
from orbit_runner.data.join_sources import ImageSource
from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.data.order.mixture import Mixture, make_order
from orbit_runner.data.order.sharding import ReplicaSlices
from orbit_runner.data.order.tf_arrays import TENSORFLOW
from orbit_runner.data.table import Table, stored_tensor
from orbit_runner.data.tfrecord import random_access
from orbit_runner.data.tfrecord.joined_records import JoinedRecords
from orbit_runner.data.tfrecord.locations import RecordNames
from orbit_runner.data.tfrecord.pipeline import evaluation_rows, training_rows
from orbit_runner.data.tfrecord.source import RecordSource

# Tensors [b] by name: `id`, `epoch`, `weight` (evaluation), `record`; later `raw` and `label`.
Columns = dict[str, Any]
_ENDLESS = 2**62


def training_columns(
    source: ImageSource,
    slices: ReplicaSlices,
    seed: int,
    start_step: int | tf.Tensor,
    shuffle_buffer_size: int,
    excluded: np.ndarray = NO_EXAMPLES,
    mixture: Mixture | None = None,
) -> tf.data.Dataset:
    """Returns an endless dataset of the columns of a pipeline's training batches.

    The columns are `id` and `epoch`, and also `record` if `source` has records.
    `start_step` is the step of the first batch. If `shuffle_buffer_size` is 0 or 1, examples are in
    stored order. `excluded`, int64 [k], are the examples to leave out, ascending. `mixture` must
    not contain them. Without a mixture, TFRecord files are read in a different order.
    """
    if isinstance(source, RecordSource) and mixture is None:
        rows = training_rows(source, slices, seed, start_step, shuffle_buffer_size, excluded)
        return rows.map(
            lambda record, ids, epochs: _set_batch_size(
                slices.batch_size, {"record": record, "id": ids, "epoch": epochs}
            )
        )
    shuffle = shuffle_buffer_size > 1
    order = make_order(source.size, seed, shuffle, excluded, mixture, TENSORFLOW)

    def batch(element: tf.Tensor) -> Columns:
        rows = order(slices.positions(element[tf.newaxis], start_step)[0])
        return _set_batch_size(slices.batch_size, {"id": rows.examples, "epoch": rows.epochs})

    return _add_records(source, tf.data.Dataset.range(_ENDLESS).map(batch))


def evaluation_columns(source: ImageSource, slices: ReplicaSlices, steps: int) -> tf.data.Dataset:
    """Returns a dataset of the columns of a pipeline's evaluation batches.

    It has each example once, in order. The columns are `id`, `epoch` (0) and `weight`, and also
    `record` if `source` has records. `steps` is the number of global steps.
    """
    count = slices.elements(steps)
    if isinstance(source, RecordSource):
        rows = evaluation_rows(source, slices, steps).rebatch(slices.batch_size).take(count)
        return rows.map(
            lambda record, ids, weights: _set_batch_size(
                slices.batch_size,
                {"record": record, "id": ids, "epoch": tf.zeros_like(ids), "weight": weights},
            )
        )

    def batch(element: tf.Tensor) -> Columns:
        positions = slices.positions(element[tf.newaxis])[0]
        real = positions < source.size
        columns = {
            "id": tf.where(real, positions, 0),
            "epoch": tf.zeros_like(positions),
            "weight": tf.cast(real, tf.float32),
        }
        return _set_batch_size(slices.batch_size, columns)

    return _add_records(source, tf.data.Dataset.range(count).map(batch))


def _add_records(source: ImageSource, columns: tf.data.Dataset) -> tf.data.Dataset:
    if isinstance(source, JoinedRecords):
        return random_access.add_records(source, columns)
    return add_records(source, columns) if isinstance(source, ArrayRecordSource) else columns


class ExampleLookup:
    """Looks up the raw images and the labels of a batch.

    `num_classes` is one more than the largest valid label; None if labels are not checked.
    """

    def __init__(self, source: ImageSource, num_classes: int | None) -> None:
        self._num_classes = num_classes
        self._find = _make_finder(source)
        self.names = _make_namer(source)

    def __call__(self, columns: Columns) -> Columns:
        """Returns the columns without `record`, but with `raw` and `label`.

        `raw` contains image files, their paths, or images. `label` is int32 [b]; computing it
        raises an error if a label is not valid.
        """
        raw, labels = self._find(columns)
        rest = {name: column for name, column in columns.items() if name != "record"}
        return rest | {"raw": raw, "label": self._check(labels, columns["id"])}

    def _check(self, labels: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        narrow, classes = tf.cast(labels, tf.int32), self._num_classes
        if classes is None:
            return narrow
        known = (labels >= 0) & (labels < classes)

        def problem() -> tf.Tensor:
            bad = tf.argmin(tf.cast(known, tf.int32))
            text = f": got label {{}}, expected 0 to {classes - 1}"
            return self.names(ids[bad : bad + 1])[0] + tf.strings.format(text, labels[bad])

        return narrow + zero_or_raise(tf.reduce_all(known), problem)


def _make_finder(source: ImageSource) -> Callable[[Columns], tuple[tf.Tensor, tf.Tensor]]:
    if isinstance(source, RecordSource | ArrayRecordSource):
        keys = source.image_key, source.label_key
        offset = source.label_offset
        features = {
            keys[0]: tf.io.FixedLenFeature([], tf.string),
            keys[1]: tf.io.FixedLenFeature([], tf.int64),
        }

        def parse(columns: Columns) -> tuple[tf.Tensor, tf.Tensor]:
            found = tf.io.parse_example(columns["record"], features)
            return found[keys[0]], found[keys[1]] - offset

        return parse
    if isinstance(source, FileSource):
        images: Any = np.array([os.fsencode(path) for path in source.paths], object)
        labels: Any = source.label
        paths, numbers = stored_tensor(images), stored_tensor(labels)
        return lambda columns: (tf.gather(paths, columns["id"]), tf.gather(numbers, columns["id"]))
    rows = [Table(source.arrays[name]) for name in ("image", "label")]

    def read(columns: Columns) -> tuple[tf.Tensor, tf.Tensor]:
        image, label = (table(columns["id"], columns["epoch"]) for table in rows)
        return image, label

    return read


def _make_namer(source: ImageSource) -> Callable[[tf.Tensor], tf.Tensor]:
    if isinstance(source, RecordSource | ArrayRecordSource):
        return RecordNames(source)
    if isinstance(source, FileSource):
        paths = stored_tensor(np.array([os.fsencode(path) for path in source.paths], object))
        return lambda ids: tf.gather(paths, ids)
    name = source.name
    return lambda ids: tf.strings.join([name, ": example ", tf.strings.as_string(ids)])


def _set_batch_size(size: int, columns: Columns) -> Columns:
    return {name: tf.ensure_shape(column, [size]) for name, column in columns.items()}
