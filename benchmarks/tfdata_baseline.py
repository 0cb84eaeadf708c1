"""The input pipeline of most programs: shuffle, augment single examples, batch."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.tasks.image_classification.sources import load_source


def tfdata_batches(config: ExperimentConfig, *, training: bool) -> tf.data.Dataset | None:
    """Returns batches of a dataset of images in memory, with a pipeline as in tutorials.

    Returns:
        Batches of images and labels: endless for training, each image once for evaluation. None for
        tasks other than image classification.
    """
    task: Any = config.task
    if task.name != "image_classification":
        return None
    section = task.train_data if training else task.validation_data
    source: Any = load_source(section)
    data = tf.data.Dataset.from_tensor_slices((source.arrays["image"], source.arrays["label"]))
    if not training:
        return data.batch(section.global_batch_size).prefetch(tf.data.AUTOTUNE)
    data = data.shuffle(min(source.size, 10_000)).repeat()
    if section.augment != "none":
        vary = _make_augmentation(section.augment_padding, flip=section.augment == "crop_flip")
        data = data.map(vary, num_parallel_calls=tf.data.AUTOTUNE)
    return data.batch(section.global_batch_size).prefetch(tf.data.AUTOTUNE)


def _make_augmentation(padding: int, *, flip: bool) -> Any:
    def vary(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        height, width, channels = image.shape
        padded = tf.image.resize_with_crop_or_pad(image, height + 2 * padding, width + 2 * padding)
        cropped = tf.image.random_crop(padded, [height, width, channels])
        return (tf.image.random_flip_left_right(cropped) if flip else cropped), label

    return vary
