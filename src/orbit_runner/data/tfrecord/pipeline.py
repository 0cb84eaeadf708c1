"""Datasets over TFRecord and ArrayRecord files, in which a batch is a function of (seed, step)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

import numpy as np
import tensorflow as tf

from orbit_runner.data.array_record.source import ArrayRecordStore
from orbit_runner.data.images.readers import (
    Columns,
    ImageReader,
    add_records_in_python,
    set_batch_size,
)
from orbit_runner.data.images.stored import StoredImages
from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.data.order.mixture import Mixture
from orbit_runner.data.order.sharding import ReplicaSlices
from orbit_runner.data.tfrecord.bad_record import remember_source
from orbit_runner.data.tfrecord.random_access import RecordPlaces, add_records
from orbit_runner.data.tfrecord.reader import Reader
from orbit_runner.data.tfrecord.source import Examples, RecordStore
from orbit_runner.errors import DataError

if TYPE_CHECKING:
    from orbit_runner.data.order.arrays import Array


class ExampleReader(ImageReader[StoredImages[Examples]], Generic[Examples]):
    """Reads images in records that are tf.Examples."""

    def __init__(self, dataset: StoredImages[Examples]) -> None:
        super().__init__(dataset)
        self._store = dataset.store
        self._features = {
            self._store.image_key: tf.io.FixedLenFeature([], tf.string),
            self._store.label_key: tf.io.FixedLenFeature([], tf.int64),
        }
        self._places = RecordPlaces(self._store.files, dataset.places)

    def find(self, columns: Columns) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns image files and the numbers of their classes."""
        store = self._store
        parsed = tf.io.parse_example(columns["record"], self._features)
        return parsed[store.image_key], parsed[store.label_key] - store.label_offset

    def names(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns names such as `train-00: record 3`."""
        return self._places.names(ids)


_ENDLESS = 2**62


def training_rows(
    source: StoredImages[RecordStore],
    slices: ReplicaSlices,
    seed: int,
    start_step: int | tf.Tensor,
    shuffle_buffer_size: int,
    excluded: np.ndarray = NO_EXAMPLES,
) -> tf.data.Dataset:
    """Returns the infinite dataset of the records of a pipeline's training batches.

    An element is a batch of serialized records, string [b], their indices and their epochs, both
    int64 [b]. `excluded`, int64 [k], are the records to leave out, ascending.
    """
    reader = Reader(source, seed, shuffle_buffer_size, excluded)
    remember_source(source, excluded)
    rows = reader.rows(
        start=start_step * slices.global_batch_size,
        epochs=_ENDLESS,
        keep=lambda positions: select_own_positions(slices, positions, start_step),
    )
    return rows.rebatch(slices.batch_size)


def select_own_positions(
    slices: ReplicaSlices, positions: Array, start_step: int | tf.Tensor = 0
) -> Array:
    """Returns which positions belong to the pipeline: those of `slices.positions`, bool [k].

    `positions` is a NumPy array or a tensor, int64 [k]. No position may be before `start_step`, the
    step at which all pipelines start.
    """
    step = positions // slices.global_batch_size
    replica = (positions - step * slices.global_batch_size) // slices.batch_size
    turn = step - (start_step + slices.first_step)
    here = (replica >= slices.first_replica) & (replica < slices.first_replica + slices.replicas)
    return here & (turn % slices.step_stride == 0)


def evaluation_rows(
    source: StoredImages[RecordStore], slices: ReplicaSlices, steps: int
) -> tf.data.Dataset:
    """Returns the dataset of the records of a pipeline's evaluation batches: each once, in order.

    An element has any length k: serialized records, string [k], their indices, int64 [k], and
    weights, float32 [k], 0 for records that pad the last batch.
    """
    reader = Reader(source, 0, 1)
    positions = steps * slices.global_batch_size
    remember_source(source)

    def add_weights(records: tf.Tensor, ids: tf.Tensor, epochs: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return records, ids, tf.cast(epochs == 0, tf.float32)

    rows = reader.rows(
        start=0, epochs=1, keep=lambda places: select_own_positions(slices, places)
    ).map(add_weights)
    missing = int(
        select_own_positions(slices, np.arange(reader.size, max(reader.size, positions))).sum()
    )
    if not missing:
        return rows
    filling = reader.rows(start=0, epochs=1, keep=lambda places: places == 0).take(1)
    fill = tf.zeros([missing], tf.int64)
    return rows.concatenate(
        filling.map(lambda records, *_: (tf.gather(records, fill), fill, tf.cast(fill, tf.float32)))
    )


class RecordReader(ExampleReader[RecordStore]):
    """Reads images in TFRecord files."""

    decodes_batches = True

    def training_columns(
        self,
        slices: ReplicaSlices,
        seed: int,
        start_step: int | tf.Tensor,
        shuffle_buffer_size: int,
        excluded: np.ndarray = NO_EXAMPLES,
        mixture: Mixture | None = None,
    ) -> tf.data.Dataset:
        """Returns an endless dataset of the columns of a pipeline's training batches.

        The records of a mixture are read by their numbers, others in blocks.
        """
        if mixture is not None:
            return super().training_columns(
                slices, seed, start_step, shuffle_buffer_size, excluded, mixture
            )
        rows = training_rows(self.dataset, slices, seed, start_step, shuffle_buffer_size, excluded)
        return rows.map(
            lambda record, ids, epochs: set_batch_size(
                slices.batch_size, {"record": record, "id": ids, "epoch": epochs}
            )
        )

    def evaluation_columns(self, slices: ReplicaSlices, steps: int) -> tf.data.Dataset:
        """Returns a dataset of the columns of a pipeline's evaluation batches."""
        rows = evaluation_rows(self.dataset, slices, steps).rebatch(slices.batch_size)
        return rows.take(slices.elements(steps)).map(
            lambda record, ids, weights: set_batch_size(
                slices.batch_size,
                {"record": record, "id": ids, "epoch": tf.zeros_like(ids), "weight": weights},
            )
        )

    def _add_records(self, columns: tf.data.Dataset) -> tf.data.Dataset:
        return add_records(self.dataset, columns)


class ArrayRecordReader(ExampleReader[ArrayRecordStore]):
    """Reads images in ArrayRecord files, for which TensorFlow has no op."""

    needs_python = True

    def _add_records(self, columns: tf.data.Dataset) -> tf.data.Dataset:
        def read(numbers: list[int]) -> list[bytes]:
            records = self.dataset.read(numbers)
            for number, record in zip(numbers, records, strict=True):
                if problem := self._store.problem(record):
                    message = f"{self.dataset.location(number)}: {problem}"
                    raise DataError(message, code="bad-record")
            return records

        return add_records_in_python(columns, read)
