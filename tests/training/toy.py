"""A small regression task whose every number can be worked out by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.config.base import setting
from orbit_runner.config.experiment import ExperimentConfig, TaskConfig
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.registry import TASKS
from orbit_runner.tasks.base import Task


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToyConfig(TaskConfig):
    """Settings of the toy."""

    num_examples: int = setting(20, minimum=1, help="size of both sets")
    nan_from: int = setting(10**9, help="step from which training data is not a number")


class ToyTask(Task):
    """y = x · w; the loss of an example is (y − label)²; data is a function of the position."""

    task_config: ToyConfig

    def build_model(self) -> tf_keras.Model:
        inputs = tf_keras.Input([3])
        outputs = tf_keras.layers.Dense(1, use_bias=False, name="w")(inputs)
        return tf_keras.Model(inputs, outputs)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        n = self.task_config.num_examples
        features = np.sin(np.arange(3 * n, dtype=np.float32)).reshape(n, 3)
        return features, features.sum(axis=1)

    def build_inputs(
        self, params: Any, input_context: Any = None, start_step: int = 0
    ) -> tf.data.Dataset:
        features, labels = self.arrays()
        replicas = input_context.num_replicas_in_sync if input_context else 1
        size = params.global_batch_size // replicas
        n = len(features)
        bad = self.task_config.nan_from * replicas if params.seed == 0 else 10**9

        def train(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            rows = (index * size + tf.range(size, dtype=tf.int64)) % n
            x = tf.where(index >= bad, np.nan, tf.gather(features, rows))
            return x, tf.gather(labels, rows)

        def evaluate(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            rows = index * size + tf.range(size, dtype=tf.int64)
            weights = tf.cast(rows < n, tf.float32)
            rows = tf.minimum(rows, n - 1)
            return tf.gather(features, rows), tf.gather(labels, rows), weights

        if params.is_training:
            return tf.data.Dataset.range(start_step * replicas, 10**12).map(train)
        steps = -(-n // params.global_batch_size)
        return tf.data.Dataset.range(steps * replicas).map(evaluate)

    def num_examples(self, params: Any) -> int:
        return self.task_config.num_examples

    def example_losses(self, labels: tf.Tensor, model_outputs: tf.Tensor) -> tf.Tensor:
        return tf.square(tf.squeeze(model_outputs, -1) - labels)

    def build_metrics(self, training: bool = True) -> list[tf_keras.metrics.Metric]:
        return [tf_keras.metrics.MeanAbsoluteError(name="error")]


TASKS.register("toy", config=ToyConfig, target=ToyTask)

_BASE = {
    "task.name": "toy",
    "task.train_data.global_batch_size": 8,
    "task.validation_data.global_batch_size": 8,
    "trainer.train_steps": 20,
    "trainer.validation_interval": 5,
    "trainer.checkpoint_interval": 5,
    "trainer.summary_interval": 5,
    "trainer.optimizer_config.optimizer.type": "sgd",
    "trainer.optimizer_config.learning_rate.type": "constant",
    "trainer.optimizer_config.learning_rate.constant.learning_rate": 0.1,
    "runtime.distribution_strategy": "one_device",
}


def toy_config(**changes: Any) -> ExperimentConfig:
    """Returns the toy's config; `__` in a name stands for a dot."""
    settings = {**_BASE, **{key.replace("__", "."): value for key, value in changes.items()}}
    flags = tuple((f"--{path}", path, str(value)) for path, value in settings.items())
    return resolve(Request(flags=flags)).config


def toy_task(config: ExperimentConfig) -> ToyTask:
    return ToyTask(config.task)
