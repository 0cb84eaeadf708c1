"""Gives the image task's model a variable whose value is the sum of the workers' values."""

from typing import Any

import tensorflow as tf

from orbit_runner.tasks.image_classification.task import ImageClassificationTask

_build_model = ImageClassificationTask.build_model


def _with_sum(self: Any) -> Any:
    model = _build_model(self)
    model.summed = tf.Variable(
        1.0,
        trainable=False,
        name="summed",
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )
    return model


ImageClassificationTask.build_model = _with_sum
