"""Reads the images in Arrow files of a tf.data pipeline's batches."""

from __future__ import annotations

import os

import numpy as np
import tensorflow as tf

from orbit_runner.data.hugging_face.images import HuggingFaceImages
from orbit_runner.data.images.readers import Columns, ImageReader
from orbit_runner.data.stored_tensor import stored_tensor

_BATCHES_AHEAD = 2


class MappedImageReader(ImageReader[HuggingFaceImages]):
    """Reads images in Arrow files that are mapped into memory."""

    needs_python = True

    def __init__(self, dataset: HuggingFaceImages) -> None:
        super().__init__(dataset)
        parts = dataset.listed.source.parts
        counts = np.array([count for _, count in parts], np.int64)
        self._labels = stored_tensor(dataset.label)
        self._rows = stored_tensor(dataset.rows)
        self._firsts = stored_tensor(np.cumsum(counts) - counts)
        self._files = stored_tensor(np.array([os.fsencode(name) for name, _ in parts], object))

    def _add_records(self, columns: tf.data.Dataset) -> tf.data.Dataset:
        def read(ids: np.ndarray) -> np.ndarray:
            return np.array(self.dataset.read(ids), object)

        def add(batch: Columns) -> Columns:
            # The result depends only on the ids.
            images = tf.numpy_function(read, [batch["id"]], tf.string, stateful=False)
            return batch | {"record": tf.ensure_shape(images, batch["id"].shape)}

        return columns.map(add).prefetch(_BATCHES_AHEAD)

    def find(self, columns: Columns) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns image files and the numbers of their classes."""
        return columns["record"], tf.gather(self._labels, columns["id"])

    def names(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns names such as `data.arrow, row 3`."""
        rows = tf.gather(self._rows, ids)
        part = tf.searchsorted(self._firsts, rows, side="right") - 1
        number = rows - tf.gather(self._firsts, part) + 1
        files = tf.gather(self._files, part)
        return tf.strings.join([files, ", row ", tf.strings.as_string(number)])
