"""Finds the record whose image does not decode, once a run has ended because of it.

Images of one size are decoded a batch at once, and what TensorFlow raises names none of them. To
name them while they are read would cost every batch; so the files are read once more.
"""

from __future__ import annotations

import tensorflow as tf

from orbit_runner.data.slicing import replica_slices
from orbit_runner.data.tfrecord.decode import SOURCES
from orbit_runner.data.tfrecord.names import RecordNames
from orbit_runner.data.tfrecord.pipeline import evaluation_rows
from orbit_runner.data.tfrecord.source import RecordSource


def undecodable() -> str:
    """Reads the sources of this process up to an image that does not decode.

    Returns:
        Its file, its place and what is wrong; "" where all of them decode.
    """
    return next(filter(None, map(_undecodable, [*SOURCES])), "")


def _undecodable(source: RecordSource) -> str:
    features = {source.image_key: tf.io.FixedLenFeature([], tf.string)}

    def number(record: tf.Tensor, place: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        encoded = tf.io.parse_single_example(record, features)[source.image_key]
        return place, tf.size(tf.io.decode_png(encoded, channels=source.image_shape[2]))

    rows = evaluation_rows(source, replica_slices(source.size, None), 1).unbatch()
    decoded = rows.map(number, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    expected = 0
    for place, _ in decoded.ignore_errors().as_numpy_iterator():
        if place != expected:
            break
        expected += 1
    if expected == source.size:
        return ""
    name = RecordNames(source)(tf.constant([expected], tf.int64))[0].numpy().decode()
    return f"{name}: does not decode; max_bad_images would leave it out"
