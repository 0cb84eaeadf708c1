"""Model Garden's image classification on a few small images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras
from official.core import config_definitions as cfg
from official.vision.configs import image_classification
from official.vision.tasks.image_classification import ImageClassificationTask

from tests.support.official_toys import trainer_settings


class SmallPhotoTask(ImageClassificationTask):
    """Model Garden's own task, except for the network."""

    def build_model(self) -> tf_keras.Model:
        inputs = tf_keras.Input([16, 16, 3])
        small = tf_keras.layers.AveragePooling2D(4)(inputs)
        outputs = tf_keras.layers.Dense(3, name="head")(tf_keras.layers.Flatten()(small))
        return tf_keras.Model(inputs, outputs)


def photos(
    folder: Path, encode: Callable[[np.ndarray], tf.Tensor] = tf.io.encode_jpeg
) -> cfg.ExperimentConfig:
    """Writes TFRecord files with 24 images of three classes; returns a config that reads them."""
    draw, paths = np.random.default_rng(0), [folder / f"{name}.tfrecord" for name in "ab"]
    for path in paths:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for label in range(12):
                image = encode(draw.integers(0, 255, [20, 24, 3]).astype(np.uint8))
                example = tf.train.Example()
                feature = example.features.feature
                feature["image/encoded"].bytes_list.value.append(image.numpy())
                feature["image/class/label"].int64_list.value.append(label % 3)
                writer.write(example.SerializeToString())
    data = image_classification.DataConfig(
        input_path=f"{folder}/*.tfrecord", global_batch_size=4, shuffle_buffer_size=8
    )
    task = image_classification.ImageClassificationTask(
        model=image_classification.ImageClassificationModel(num_classes=3, input_size=[16, 16, 3]),
        train_data=data.replace(is_training=True),
        validation_data=data.replace(is_training=False),
    )
    return cfg.ExperimentConfig(task=task, trainer=cfg.TrainerConfig(**trainer_settings()))
