"""Compares ways to decode and crop JPEGs.

The images have 500×375 pixels. A random part of each is resized to 224×224.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks.harness import Figure, alternate
from orbit_runner.data.images import files
from orbit_runner.data.images.decode import crop
from orbit_runner.data.images.decode_errors import BadImages
from orbit_runner.data.images.pipeline import train_images
from orbit_runner.data.images.train_image import Preprocessing, augment
from orbit_runner.data.options import PipelineOptions

TITLE = "JPEGs of 500×375, a random part of each to 224×224: decode and crop at once / one by one"
UNIT = "images/s"
_SHAPE = (224, 224, 3)
_FILES, _IMAGES, _BATCH = 32, 1536, 32
_PREPROCESSING = Preprocessing(areas=(0.08, 1.0), flip=True)


def _photo(number: int) -> bytes:
    random = np.random.default_rng(number)
    coarse = random.integers(0, 256, (1, 12, 16, 3)).astype(np.float32)
    smooth = tf.image.resize(coarse, (375, 500), method="bicubic")[0]
    noisy = smooth + random.normal(0, 6, smooth.shape).astype(np.float32)
    return tf.io.encode_jpeg(tf.saturate_cast(noisy, tf.uint8), quality=90).numpy()


def _map_images(paths: list[str], fused: bool) -> Callable[[], int]:
    """Maps over single images, as most input pipelines do."""

    def image(number: tf.Tensor) -> tf.Tensor:
        encoded = tf.io.read_file(tf.gather(paths, number % _FILES))
        epoch = number // _FILES
        if fused:
            return augment(
                encoded, number, epoch, shape=_SHAPE, seed=1, preprocessing=_PREPROCESSING
            )
        whole = tf.ensure_shape(tf.io.decode_jpeg(encoded, channels=3), [None, None, 3])
        part = crop(whole, _PREPROCESSING.window(1, number, epoch))
        return augment(
            part, number, epoch, shape=_SHAPE, seed=1,
            preprocessing=Preprocessing(center_crop_fraction=None, flip=True),
        )  # fmt: skip

    dataset = tf.data.Dataset.range(2**62).map(image, num_parallel_calls=tf.data.AUTOTUNE)
    return _make_batch_reader(dataset.batch(_BATCH).prefetch(2))


def _pipeline(source: files.FileSource) -> Callable[[], int]:
    dataset = train_images(
        source,
        shape=_SHAPE,
        resize=True,
        global_batch_size=_BATCH,
        seed=1,
        bad=BadImages("train_data", 0),
        shuffle_buffer_size=2,
        preprocessing=_PREPROCESSING,
        options=PipelineOptions(prefetch=2),
    )
    return _make_batch_reader(dataset.map(lambda batch: batch["image"]))


def _make_batch_reader(batches: tf.data.Dataset) -> Callable[[], int]:
    # All rounds share one iterator. A new one would prefetch batches that are not counted: more of
    # them in a pipeline with more parallelism.
    images = iter(batches)
    return lambda: sum(len(next(images)) for _ in range(_IMAGES // _BATCH))


def measure(rounds: int = 7) -> list[Figure]:
    """Returns the figures relative to a map that decodes the whole image first.

    The other contenders are a map that decodes only the crop, and the runner's pipeline, which also
    reports images that cannot be decoded.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "class"
        place.mkdir()
        for number in range(_FILES):
            (place / f"{number:02}.jpg").write_bytes(_photo(number))
        source = files.load(split="train", data_dir=folder)
        paths = list(source.paths)
        contenders = {
            "decode, then crop, one by one": _map_images(paths, fused=False),
            "decode and crop at once, one by one": _map_images(paths, fused=True),
            "the runner's pipeline": _pipeline(source),
        }
        return alternate(contenders, baseline="decode, then crop, one by one", rounds=rounds)
