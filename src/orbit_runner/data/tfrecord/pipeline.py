"""Datasets over TFRecord and ArrayRecord files, in which a batch is a function of (seed, step)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import tensorflow as tf

from orbit_runner.data.array_record import ArrayRecordImages
from orbit_runner.data.images.readers import (
    Columns,
    ImageReader,
    add_records_in_python,
    set_batch_size,
)
from orbit_runner.data.options import ENDLESS
from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.data.order.mixture import Mixture
from orbit_runner.data.order.sharding import ReplicaSlices
from orbit_runner.data.tfrecord.reader import Reader, RecordPlaces, add_records
from orbit_runner.data.tfrecord.source import ExampleImages, RecordImages
from orbit_runner.errors import DataError

if TYPE_CHECKING:
    from orbit_runner.data.order.arrays import Array

_Examples = TypeVar("_Examples", bound=ExampleImages)


class ExampleReader(ImageReader[_Examples], Generic[_Examples]):
    """Reads images in records that are tf.Examples."""

    def __init__(self, dataset: _Examples) -> None:
        super().__init__(dataset)
        self._features = {
            dataset.image_key: tf.io.FixedLenFeature([], tf.string),
            dataset.label_key: tf.io.FixedLenFeature([], tf.int64),
        }
        self._places = RecordPlaces(dataset.files, dataset.places)

    def find(self, columns: Columns) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns image files and the numbers of their classes."""
        dataset = self.dataset
        parsed = tf.io.parse_example(columns["record"], self._features)
        return parsed[dataset.image_key], parsed[dataset.label_key] - dataset.label_offset

    def names(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns names such as `train-00: record 3`."""
        return self._places.names(ids)


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
    is_own = (replica >= slices.first_replica) & (replica < slices.first_replica + slices.replicas)
    return is_own & (turn % slices.step_stride == 0)


class RecordReader(ExampleReader[RecordImages]):
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
        reader = Reader(self.dataset, seed, shuffle_buffer_size, excluded)
        rows = reader.rows(
            start=start_step * slices.global_batch_size,
            epochs=ENDLESS,
            keep=lambda positions: select_own_positions(slices, positions, start_step),
        )
        return rows.rebatch(slices.batch_size).map(
            lambda record, ids, epochs: set_batch_size(
                slices.batch_size, {"record": record, "id": ids, "epoch": epochs}
            )
        )

    def evaluation_columns(self, slices: ReplicaSlices, steps: int) -> tf.data.Dataset:
        """Returns a dataset of the columns of a pipeline's evaluation batches."""
        reader = Reader(self.dataset, 0, 1)
        rows = reader.rows(
            start=0, epochs=1, keep=lambda places: select_own_positions(slices, places)
        ).map(lambda record, ids, _: (record, ids, tf.ones_like(ids, tf.float32)))
        padding = np.arange(reader.size, max(reader.size, steps * slices.global_batch_size))
        missing = int(select_own_positions(slices, padding).sum())
        if missing:
            first = reader.rows(start=0, epochs=1, keep=lambda places: places == 0).take(1)
            ids = tf.zeros([missing], tf.int64)
            weights = tf.zeros([missing])
            rows = rows.concatenate(
                first.map(lambda record, *_: (tf.gather(record, ids), ids, weights))
            )
        batches = rows.rebatch(slices.batch_size).take(slices.elements(steps))
        return batches.map(
            lambda record, ids, weights: set_batch_size(
                slices.batch_size,
                {"record": record, "id": ids, "epoch": tf.zeros_like(ids), "weight": weights},
            )
        )

    def _add_records(self, columns: tf.data.Dataset) -> tf.data.Dataset:
        return add_records(self.dataset, columns)


class ArrayRecordReader(ExampleReader[ArrayRecordImages]):
    """Reads images in ArrayRecord files, for which TensorFlow has no op."""

    needs_python = True

    def _add_records(self, columns: tf.data.Dataset) -> tf.data.Dataset:
        def read(numbers: list[int]) -> list[bytes]:
            records = self.dataset.read(numbers)
            for number, record in zip(numbers, records, strict=True):
                if problem := self.dataset.problem(record):
                    message = f"{self.dataset.location(number)}: {problem}"
                    raise DataError(message, code="bad-record")
            return records

        return add_records_in_python(columns, read)
