"""Gives the image task a gradient that is NaN, and a loss that is not."""

from typing import Any

import tensorflow as tf

from orbit_runner.tasks.image_classification.task import ImageClassificationTask

_build_model = ImageClassificationTask.build_model


def _with_loss(self: Any) -> Any:
    model = _build_model(self)
    weight = model.trainable_variables[0]
    # The square root has no slope at 0.
    model.add_loss(lambda: tf.sqrt(0.0 * tf.reduce_sum(tf.zeros_like(weight) * weight)))
    return model


ImageClassificationTask.build_model = _with_loss
