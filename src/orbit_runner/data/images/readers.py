"""Reads the columns of a batch (numbers, labels, raw images) before its images are decoded."""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import tensorflow as tf

from orbit_runner.data.images.dataset import ImageArrays, ImageDataset
from orbit_runner.data.images.decode_errors import read_in_python, zero_or_raise
from orbit_runner.data.images.files import FileImages
from orbit_runner.data.images.stored import StoredImages
from orbit_runner.data.options import ENDLESS
from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.data.order.mixture import Mixture, make_order
from orbit_runner.data.order.sharding import ReplicaSlices
from orbit_runner.data.order.tf_arrays import TENSORFLOW
from orbit_runner.data.stored_tensor import Table, stored_tensor

# Tensors [b] by name: `id`, `epoch`, `weight` (evaluation), `record`; later `raw` and `label`.
Columns = dict[str, Any]
Dataset = TypeVar("Dataset", bound=ImageDataset)
_BATCHES_AHEAD = 2


def make_reader(dataset: ImageDataset) -> ImageReader[ImageDataset]:
    """Returns the reader of a dataset."""
    reader: ImageReader[ImageDataset] = pkgutil.resolve_name(dataset.graph_reader)(dataset)
    return reader


class ImageReader(Generic[Dataset]):
    """Reads images by their numbers. Subclasses say where they find images, labels and names."""

    # Whether batches are read by Python code, which a tf.data service cannot run.
    needs_python: ClassVar[bool] = False
    # Whether images that need nothing but decoding are decoded by whole batches.
    decodes_batches: ClassVar[bool] = False

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

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

        The columns are `id` and `epoch`, and also `record` if the dataset has records.
        `start_step` is the step of the first batch. If `shuffle_buffer_size` is 0 or 1, examples
        are in stored order. `excluded`, int64 [k], are the examples to leave out, ascending.
        `mixture` must not contain them.
        """
        shuffle = shuffle_buffer_size > 1
        order = make_order(self.dataset.size, seed, shuffle, excluded, mixture, TENSORFLOW)

        def batch(element: tf.Tensor) -> Columns:
            rows = order(slices.positions(element[tf.newaxis], start_step)[0])
            return set_batch_size(slices.batch_size, {"id": rows.examples, "epoch": rows.epochs})

        return self._add_records(tf.data.Dataset.range(ENDLESS).map(batch))

    def evaluation_columns(self, slices: ReplicaSlices, steps: int) -> tf.data.Dataset:
        """Returns a dataset of the columns of a pipeline's evaluation batches.

        It has each example once, in order. The columns are `id`, `epoch` (0) and `weight`, and also
        `record` if the dataset has records. `steps` is the number of global steps.
        """
        size = self.dataset.size

        def batch(element: tf.Tensor) -> Columns:
            positions = slices.positions(element[tf.newaxis])[0]
            real = positions < size
            columns = {
                "id": tf.where(real, positions, 0),
                "epoch": tf.zeros_like(positions),
                "weight": tf.cast(real, tf.float32),
            }
            return set_batch_size(slices.batch_size, columns)

        return self._add_records(tf.data.Dataset.range(slices.elements(steps)).map(batch))

    def _add_records(self, columns: tf.data.Dataset) -> tf.data.Dataset:
        return columns

    def find(self, columns: Columns) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns image files, their paths or images, [b], and the numbers of classes, [b]."""
        raise NotImplementedError

    def names(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the names of images, string [k], for messages. `ids` is int64 [k]."""
        raise NotImplementedError

    def read_raw(self, raw: tf.Tensor) -> tf.Tensor:
        """Returns an image file or an image, given what `find` returns for it."""
        return raw

    def look_up(self, columns: Columns, num_classes: int | None) -> Columns:
        """Returns the columns without `record`, but with `raw` and `label`.

        `raw` contains image files, their paths, or images. `label` is int32 [b]; computing it
        raises an error if a label is not below `num_classes`, unless that is None.
        """
        raw, labels = self.find(columns)
        rest = {name: column for name, column in columns.items() if name != "record"}
        return rest | {"raw": raw, "label": self._check(labels, columns["id"], num_classes)}

    def _check(self, labels: tf.Tensor, ids: tf.Tensor, classes: int | None) -> tf.Tensor:
        narrow = tf.cast(labels, tf.int32)
        if classes is None:
            return narrow
        known = (labels >= 0) & (labels < classes)

        def problem() -> tf.Tensor:
            bad = tf.argmin(tf.cast(known, tf.int32))
            text = f": got label {{}}, expected 0 to {classes - 1}"
            return self.names(ids[bad : bad + 1])[0] + tf.strings.format(text, labels[bad])

        return narrow + zero_or_raise(tf.reduce_all(known), problem)


class ArrayReader(ImageReader[ImageArrays]):
    """Reads images in memory."""

    def __init__(self, dataset: ImageArrays) -> None:
        super().__init__(dataset)
        self._image, self._label = (Table(dataset.arrays[name]) for name in ("image", "label"))

    def find(self, columns: Columns) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the images and the numbers of their classes."""
        key = columns["id"], columns["epoch"]
        return self._image(*key), self._label(*key)

    def names(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the names of images."""
        return tf.strings.join([self.dataset.name, ": example ", tf.strings.as_string(ids)])


class FileReader(ImageReader[FileImages]):
    """Reads image files."""

    def __init__(self, dataset: FileImages) -> None:
        super().__init__(dataset)
        paths = [*map(os.fsencode, dataset.used_paths())]
        self._paths = stored_tensor(np.array(paths, object))
        self._labels = stored_tensor(dataset.class_numbers())

    def find(self, columns: Columns) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the paths of images and the numbers of their classes."""
        return tf.gather(self._paths, columns["id"]), tf.gather(self._labels, columns["id"])

    def names(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the paths of images."""
        return tf.gather(self._paths, ids)

    def read_raw(self, raw: tf.Tensor) -> tf.Tensor:
        """Returns an image file."""
        return tf.io.read_file(raw)


class MappedImageReader(ImageReader[StoredImages]):
    """Reads images in Arrow files that are mapped into memory."""

    needs_python = True

    def __init__(self, dataset: StoredImages) -> None:
        super().__init__(dataset)
        self._labels = stored_tensor(dataset.class_numbers())

    def _add_records(self, columns: tf.data.Dataset) -> tf.data.Dataset:
        return add_records_in_python(columns, self.dataset.read)

    def find(self, columns: Columns) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns image files and the numbers of their classes."""
        return columns["record"], tf.gather(self._labels, columns["id"])

    def names(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns names such as `data.arrow, row 3`."""

        def read(numbers: np.ndarray) -> np.ndarray:
            names = map(self.dataset.location, numbers.tolist())
            return np.array([*map(os.fsencode, names)], object)

        return tf.ensure_shape(tf.numpy_function(read, [ids], tf.string, stateful=False), ids.shape)


def add_records_in_python(
    columns: tf.data.Dataset, read: Callable[[list[int]], list[bytes]]
) -> tf.data.Dataset:
    """Returns batches of columns with the column `record`: what `read` returns for the `id`s."""

    def read_column(ids: list[int]) -> list[np.ndarray]:
        return [np.array(read(ids), object)]

    def add(batch: Columns) -> Columns:
        (records,) = read_in_python(read_column, batch["id"], [(tf.string, ())])
        return batch | {"record": records}

    return columns.map(add).prefetch(_BATCHES_AHEAD)


def set_batch_size(size: int, columns: Columns) -> Columns:
    """Returns columns whose length is known to the graph."""
    return {name: tf.ensure_shape(column, [size]) for name, column in columns.items()}
