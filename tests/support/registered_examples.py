"""Experiments of Model Garden's kinds, registered as a user of it would register them."""

from __future__ import annotations

import dataclasses

import gin
import tensorflow as tf
import tf_keras
from official.core import base_trainer, config_definitions, exp_factory
from official.modeling import hyperparams
from official.modeling.hyperparams import base_config
from official.utils.testing import mock_task


@dataclasses.dataclass
class SliceRuntime(config_definitions.RuntimeConfig):
    """A runtime section with an additional field."""

    num_slices: int = 1


@dataclasses.dataclass
class ShapedTask(mock_task.MockTaskConfig):
    """A task with a tuple and a list."""

    shape: tuple[int, ...] = (3, 4)
    sizes: list[int] = dataclasses.field(default_factory=lambda: [5, 6])


@exp_factory.register_config_factory("orbit_runner_test_slices")
def slices() -> config_definitions.ExperimentConfig:
    """Returns an experiment with a subclass of the runtime section."""
    return config_definitions.ExperimentConfig(
        task=ShapedTask(), runtime=SliceRuntime(distribution_strategy="off")
    )


@exp_factory.register_config_factory("orbit_runner_test_restricted")
def restricted() -> config_definitions.ExperimentConfig:
    """Returns an experiment with restrictions."""
    return config_definitions.ExperimentConfig(
        task=mock_task.MockTaskConfig(),
        trainer=config_definitions.TrainerConfig(train_steps=10, validation_steps=5),
        restrictions=[
            "trainer.train_steps >= trainer.validation_steps",
            "task.train_data.input_path != None",
        ],
    )


@exp_factory.register_config_factory("orbit_runner_test_plain")
def plain() -> hyperparams.Config:
    """Returns an experiment without declared sections."""
    return hyperparams.Config(
        default_params={
            "runtime": {"tpu": "fake"},
            "task": {"model": {"model_id": "bar", "head": {"units": 3, "bias": True}}},
            "trainer": {"train_steps": 2, "validation_steps": -1},
            "notes": {"author": "nobody"},
        }
    )


@dataclasses.dataclass
class RandomTaskConfig(config_definitions.TaskConfig):
    """A task whose data and model draw random numbers."""

    units: int = 1


@base_config.bind(RandomTaskConfig)
class RandomTask(mock_task.MockTask):
    """Shuffles its examples, which start at random numbers, and drops some inputs."""

    def build_model(self) -> tf_keras.Model:
        """Returns a small network with dropout."""
        inputs = tf_keras.Input((2,))
        dropped = tf_keras.layers.Dropout(0.5)(inputs)
        outputs = tf_keras.layers.Dense(self.task_config.units, name="out")(dropped)
        return mock_task.MockModel(tf_keras.Model(inputs, outputs))

    def build_inputs(self, params: config_definitions.DataConfig) -> tf.data.Dataset:
        """Returns shuffled examples."""
        del params
        examples = tf.random.normal([8, 2]), tf.zeros([8, 1], tf.int32)
        return tf.data.Dataset.from_tensor_slices(examples).shuffle(8).repeat().batch(2)


@exp_factory.register_config_factory("orbit_runner_test_random")
def random_experiment() -> config_definitions.ExperimentConfig:
    """Returns an experiment that draws random numbers."""
    runtime = config_definitions.RuntimeConfig(distribution_strategy="off")
    return config_definitions.ExperimentConfig(task=RandomTaskConfig(), runtime=runtime)


@gin.configurable(module="orbit_runner_test")
class MarkedTrainer(base_trainer.Trainer):
    """Adds a metric."""

    def train_loop_end(self) -> dict[str, object]:
        """Returns the metrics of a loop."""
        return {**super().train_loop_end(), "mine": 7.0}
