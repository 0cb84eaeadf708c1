"""Parses and names records that are tf.Examples with an image."""

from __future__ import annotations

import os

import numpy as np
import tensorflow as tf

from orbit_runner.data.images.readers import Columns, ImageReader
from orbit_runner.data.stored_tensor import stored_tensor
from orbit_runner.data.tfrecord.source import RecordDataset


class RecordNames:
    """Names records by their file and their position in it."""

    def __init__(self, source: RecordDataset) -> None:
        blocks = source.blocks
        self._firsts, self._places, self._file = (
            stored_tensor(column.astype(np.int64))
            for column in (blocks.first, blocks.place, blocks.file)
        )
        self._files = stored_tensor(np.array([os.fsencode(path) for path in source.files], object))

    def __call__(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns names such as `train-00: record 3`, string [k], of record indices, int64 [k]."""
        block = tf.searchsorted(self._firsts, ids, side="right") - 1
        places = ids - tf.gather(self._firsts, block) + tf.gather(self._places, block)
        files = tf.gather(self._files, tf.gather(self._file, block))
        return tf.strings.join([files, ": record ", tf.strings.as_string(places)])


class ExampleReader(ImageReader[RecordDataset]):
    """Reads images in records that are tf.Examples."""

    def __init__(self, dataset: RecordDataset) -> None:
        super().__init__(dataset)
        self._features = {
            dataset.image_key: tf.io.FixedLenFeature([], tf.string),
            dataset.label_key: tf.io.FixedLenFeature([], tf.int64),
        }
        self._names = RecordNames(dataset)

    def find(self, columns: Columns) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns image files and the numbers of their classes."""
        dataset = self.dataset
        parsed = tf.io.parse_example(columns["record"], self._features)
        return parsed[dataset.image_key], parsed[dataset.label_key] - dataset.label_offset

    def names(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns names such as `train-00: record 3`."""
        return self._names(ids)
