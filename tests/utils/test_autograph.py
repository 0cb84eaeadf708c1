"""Plain Python branches over tensors work in user code; our own code has none."""

from typing import Any

import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python.autograph.impl import api

from orbit_runner.models.configs import MlpConfig
from orbit_runner.models.layers import ImageInput
from orbit_runner.registry import IMAGE_MODELS, TASKS
from orbit_runner.tasks.image_classification.config import ImageClassificationConfig
from orbit_runner.tasks.image_classification.task import ImageClassificationTask
from tests.support.digits import cnn_config, digits_config
from tests.support.ratings import ratings_config
from tests.support.toy import run

_FED = {"task__train_data__on_device": False, "task__validation_data__on_device": False}
_WAYS: dict[str, dict[str, Any]] = {
    "in memory": {},
    "pipeline of unknown length": {**_FED, "trainer__validation_steps": -1},
    "pieces": {"trainer__gradient_accumulation_steps": 2},
    "xla on a pipeline": {"runtime__enable_xla": True, **_FED},
}


class BranchingTask(ImageClassificationTask):
    """Changes the loss by an `if` and, in evaluation, a `while`, for AutoGraph to convert."""

    def build_losses(self, *args: Any, **kwargs: Any) -> tf.Tensor:
        loss = super().build_losses(*args, **kwargs)
        if loss > 1.0:
            loss = loss / 2.0
        return loss

    def validation_step(self, inputs: Any, model: Any, metrics: Any = None) -> dict[str, Any]:
        logs: dict[str, Any] = super().validation_step(inputs, model, metrics)
        turns = 0
        while turns < tf.shape(inputs[1])[0]:
            turns += 1
        logs["loss"] = logs["loss"] + tf.cast(turns, tf.float32)
        return logs


class LateModel(tf_keras.Model):
    """Creates its variables in its first call, so that a step is traced before a restore."""

    def __init__(self) -> None:
        super().__init__()
        self._dense = tf_keras.layers.Dense(10)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self._dense(tf.reshape(tf.cast(inputs, tf.float32), [-1, 64]))


class LateTask(BranchingTask):
    """A task that branches, on a model that is not built yet."""

    def build_model(self) -> tf_keras.Model:
        return LateModel()


class BranchingLayer(tf_keras.layers.Layer):
    """Halves its inputs if they are large, and counts how often."""

    def build(self, input_shape: Any) -> None:
        self.halved = self.add_weight("halved", [], initializer="zeros", trainable=False)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if tf.reduce_max(inputs) > 8.0:
            inputs = inputs / 2.0
            self.halved.assign_add(1.0)
        return inputs


def branching_mlp(config: MlpConfig, images: ImageInput) -> tf_keras.Model:
    inputs = tf_keras.Input(images.shape, dtype="uint8")
    x = tf_keras.layers.Flatten()(tf.cast(inputs, tf.float32))
    return tf_keras.Model(inputs, tf_keras.layers.Dense(images.num_classes)(BranchingLayer()(x)))


@pytest.fixture
def registered(monkeypatch):
    for registry in (TASKS, IMAGE_MODELS):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    TASKS.register("branching", config=ImageClassificationConfig, target=BranchingTask)
    TASKS.register("late", config=ImageClassificationConfig, target=LateTask)
    IMAGE_MODELS.register("branching", config=MlpConfig, target=branching_mlp)


@pytest.mark.slow
@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("name", "way"),
    # In the last one, a step is traced before a restore.
    [*(("branching", way) for way in _WAYS), ("late", "in memory")],
)
def test_tasks_and_layers_of_users_may_branch_over_tensors(name, way, tmp_path):
    config = digits_config(
        task__name=name, task__model__name="branching", trainer__train_steps=30, **_WAYS[way]
    )
    model, logs = run(config, tmp_path)
    assert logs["validation_loss"] > 64  # The iterations of the loop were added.
    if name == "branching":
        (layer,) = (layer for layer in model.layers if isinstance(layer, BranchingLayer))
        assert layer.halved.numpy() >= 30
    else:
        _, logs = run(digits_config(trainer__train_steps=30), tmp_path / "without a loop")
        assert logs["validation_loss"] < 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "way"),
    [
        (digits_config, "pieces"),
        (cnn_config, "xla on a pipeline"),
        (ratings_config, "in memory"),
    ],
)
def test_autograph_converts_none_of_our_own_code(make, way, tmp_path, monkeypatch):
    converted: list[str] = []
    convert = api._convert_actual

    def remembered(entity: Any, context: Any) -> Any:
        converted.append(f"{entity.__module__}.{entity.__qualname__}")
        return convert(entity, context)

    monkeypatch.setattr(api, "_convert_actual", remembered)
    run(make(trainer__train_steps=10, **_WAYS[way]), tmp_path)
    ours = {name for name in converted if name.startswith(("orbit_runner", "official"))}
    # Keras converts the calls of layers, once, when the model is built.
    assert ours <= {"orbit_runner.models.layers.Normalize.call"}
