"""Writes TFRecord files of small images whose label is the number of the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from orbit_runner.data.images.decode_errors import BadImages
from orbit_runner.data.images.pipeline import eval_images, train_images
from orbit_runner.data.tfrecord.source import RecordImages

# One shorter than a block of 64, one empty, one of a single record, one of exactly a block.
SIZES = (70, 1, 0, 64, 130, 5)
SHAPE = (6, 5, 3)


def pixels(number: int, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    """Returns the image of a record."""
    return np.random.default_rng(number).integers(0, 256, shape).astype(np.uint8)


def example(encoded: bytes, label: Any) -> bytes:
    """Returns a serialized tf.Example with a feature that nobody reads among the others."""
    features = {
        "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded])),
        "image/height": tf.train.Feature(float_list=tf.train.FloatList(value=[6.0])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def write_file(path: Path, records: Sequence[bytes]) -> Path:
    """Writes one file."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return path


def write_set(
    folder: Path,
    sizes: Sequence[int] = SIZES,
    shape: tuple[int, ...] = SHAPE,
    classes: int | None = None,
    write: Callable[[Path, Sequence[bytes]], Path] = write_file,
) -> list[Path]:
    """Writes `train-00` and so on; labels are record numbers, modulo `classes` if given."""
    paths, first = [], 0
    for number, size in enumerate(sizes):
        records = [
            example(tf.io.encode_png(pixels(k, shape)).numpy(), k % classes if classes else k)
            for k in range(first, first + size)
        ]
        paths.append(write(folder / f"train-{number:02}", records))
        first += size
    return paths


def ints(*values: int) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def train_records(source: RecordImages, *, global_batch_size: int, **settings: Any) -> Any:
    """Returns training batches of images that need nothing but decoding."""
    batches = train_images(
        source,
        shape=source.image_shape,
        resize=False,
        bad=BadImages("train_data", 0),
        global_batch_size=global_batch_size,
        **settings,
    )
    return batches.map(lambda batch: {name: batch[name] for name in ("image", "label")})


def eval_records(source: RecordImages, *, global_batch_size: int, **settings: Any) -> Any:
    """Returns evaluation batches of images that need nothing but decoding, and their weights."""
    batches = eval_images(
        source,
        shape=source.image_shape,
        resize=False,
        bad=BadImages("validation_data", 0),
        global_batch_size=global_batch_size,
        **settings,
    )
    return batches.map(
        lambda batch: ({name: batch[name] for name in ("image", "label")}, batch["weight"])
    )
