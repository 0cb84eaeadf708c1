"""Reads the ArrayRecord records of a tf.data pipeline's batches."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from orbit_runner.data.array_record.source import ArrayRecordSource
from orbit_runner.data.images.decode_errors import zero_or_raise
from orbit_runner.data.tfrecord.example import example_problem
from orbit_runner.data.tfrecord.pipeline import ExampleReader
from orbit_runner.errors import DataError

_BATCHES_AHEAD = 2


def add_records(source: ArrayRecordSource, columns: tf.data.Dataset) -> tf.data.Dataset:
    """Returns batches of columns with the column `record`: serialized examples, string [b].

    The batches must have the column `id`, the numbers of the records, int64 [b]. A record that
    cannot be read, or that is not an example with image and label, raises an error that names it.
    """
    expected = {source.image_key: "bytes", source.label_key: "int64"}

    def read(ids: np.ndarray) -> tuple[np.ndarray, bytes]:
        numbers = ids.tolist()
        problem = ""
        try:
            records = source.read(numbers)
        except DataError as error:
            records = [b""] * len(numbers)
            problem = str(error)
        if not problem:
            problems = (
                (n, example_problem(r, expected)) for n, r in zip(numbers, records, strict=True)
            )
            problem = next(
                (f"{source.example_name(n)}: {text}" for n, text in problems if text), ""
            )
        return np.array(records, object), problem.encode()

    def add(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        ids = batch["id"]
        # TensorFlow's packages do not contain an op for these files. The result depends only on
        # the ids.
        records, problem = tf.numpy_function(read, [ids], [tf.string, tf.string], stateful=False)
        zero = zero_or_raise(tf.equal(problem, ""), lambda: tf.ensure_shape(problem, []))
        return batch | {
            "record": tf.ensure_shape(records, ids.shape),
            "id": ids + tf.cast(zero, ids.dtype),
        }

    return columns.map(add).prefetch(_BATCHES_AHEAD)


class ArrayRecordReader(ExampleReader):
    """Reads images in ArrayRecord files."""

    needs_python = True
    dataset: ArrayRecordSource

    def _add_records(self, columns: tf.data.Dataset) -> tf.data.Dataset:
        return add_records(self.dataset, columns)
