"""Evaluations that are not finite are reported, and count as no improvement."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.support.keras_models import classes, keras_config
from tests.support.toy import Notes, run

HERE = "tests.train.test_divergence"


def with_bad_rows(bad, count=37, seed=2):
    """Returns examples of which some have a feature that the model cannot use."""
    x, y = classes(count, seed)
    x[bad, 1] = -1000.0
    return x, y


def logarithmic():
    """Returns a classifier whose first layer is the logarithm of x + 100."""
    inputs = tf_keras.Input([4])
    hidden = tf_keras.layers.Lambda(lambda x: tf.math.log(x + 100.0))(inputs)
    return tf_keras.Model(inputs, tf_keras.layers.Dense(3, dtype="float32")(hidden))


class NanWithoutClass(tf_keras.metrics.Metric):
    """The share of a class that no label has: 0 / 0."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.total = self.add_weight(name="total", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign_add(tf.reduce_sum(tf.cast(tf.equal(y_true, 99), tf.float32)))

    def result(self):
        return self.total / self.total


def _config(**changes):
    return keras_config(
        task__model=f"{HERE}:logarithmic",
        task__validation_data__function=f"{HERE}:with_bad_rows",
        task__validation_data__arguments="{bad: [7]}",
        **changes,
    )


def _warnings(notes):
    return [text for text in notes.notes if text.startswith("warning: the evaluation")]


@pytest.mark.slow
def test_evaluation_that_is_not_finite_is_reported(tmp_path):
    notes = Notes()
    config = _config(task__train_data__global_batch_size=16)
    _, logs = run(config, tmp_path, strategy="mirrored2", notes=notes)
    assert not np.isfinite(logs["validation_loss"])
    assert _warnings(notes) == [
        f"warning: the evaluation at step {step} is not finite: validation_loss is nan"
        for step in (10, 20)
    ]


@pytest.mark.slow
def test_metric_that_is_nan_by_its_definition(tmp_path):
    notes = Notes()
    config = keras_config(task__metrics=f"['{HERE}:NanWithoutClass']", trainer__train_steps=10)
    run(config, tmp_path, notes=notes)
    (text,) = _warnings(notes)
    assert text.endswith("is not finite: nan_without_class is nan")
