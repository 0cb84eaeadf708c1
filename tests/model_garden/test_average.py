"""The average of the weights compared with that of Model Garden: variables and values."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.core import train_lib as official_train_lib
from official.core import train_utils
from official.utils.testing import mock_task

from orbit_runner import train_lib
from orbit_runner.checkpoint.fingerprint import CheckpointContent, names_by_key


class Network(tf_keras.Model):
    """Batch norm and a layer, a frozen layer, and a counter."""

    def __init__(self):
        super().__init__()
        self.norm = tf_keras.layers.BatchNormalization()
        self.frozen = tf_keras.layers.Dense(2, kernel_initializer="ones", trainable=False)
        self.out = tf_keras.layers.Dense(1, kernel_initializer="ones")
        self.count = tf.Variable(0, dtype=tf.int64, trainable=False, name="count")

    def call(self, inputs, training=None):
        return self.out(self.frozen(self.norm(inputs, training=training)))


class Task(mock_task.MockTask):
    def build_model(self):
        model = Network()
        model(tf.zeros([2, 2]))
        return model

    def build_losses(self, labels, model_outputs, aux_losses=None):
        return tf.reduce_mean((model_outputs - 1.0) ** 2)

    def build_metrics(self, training=True):
        return []

    def build_inputs(self, params):
        data = tf.constant([[1.0, 2.0], [3.0, 5.0]]), tf.zeros([2, 1], tf.int32)
        return tf.data.Dataset.from_tensor_slices(data).repeat().batch(2)


def averages(run_experiment, model_dir, *, trainable_only):
    tf_keras.backend.clear_session()
    # Up to the start step both are the weights themselves: Model Garden's begins at zeros.
    ema = {"trainable_weights_only": trainable_only, "average_decay": 0.5, "start_step": 3}
    rate = {"type": "constant", "constant": {"learning_rate": 0.01}}
    optimizer = {"optimizer": {"type": "sgd"}, "ema": ema, "learning_rate": rate}
    trainer = {"train_steps": 10, "steps_per_loop": 5, "optimizer_config": optimizer}
    options = train_utils.ParseConfigOptions(
        "mock", [], params_override=json.dumps({"trainer": trainer})
    )
    params = train_utils.parse_configuration(options, print_return=False)
    strategy = tf.distribute.OneDeviceStrategy("cpu:0")
    with strategy.scope():
        task = Task(params.task)
    run_experiment(strategy, task, "train", params, str(model_dir))
    content = CheckpointContent(tf.train.latest_checkpoint(str(model_dir)))
    names = names_by_key(content.graph)
    # Averages of Model Garden are slots of the weights. Those of this runner have their names.
    slot = "/.OPTIMIZER_SLOT/optimizer/average"
    paths = {key: key.partition("/.ATTRIBUTES/")[0] for key in names}
    weights = {names[key]: path for key, path in paths.items() if not path.endswith(slot)}
    values = {}
    for key, path in paths.items():
        if path.startswith("ema/"):
            path = f"{weights[names[key].removesuffix('/average')]}{slot}"
        if path.endswith(slot):
            values[path.removeprefix("model/").removesuffix(slot)] = content.tensor(key)
    return values


@pytest.mark.slow
@pytest.mark.parametrize("trainable_only", [True, False])
def test_weight_average_matches_that_of_model_garden(trainable_only, tmp_path):
    theirs = averages(
        official_train_lib.run_experiment, tmp_path / "a", trainable_only=trainable_only
    )
    ours = averages(train_lib.run_experiment, tmp_path / "b", trainable_only=trainable_only)
    counted = {} if trainable_only else {"count"}
    assert theirs.keys() == {*ours.keys(), *counted}
    assert ("norm/moving_mean" in ours) is not trainable_only
    for name, value in ours.items():
        np.testing.assert_allclose(value, theirs[name], rtol=1e-6, atol=1e-7)
