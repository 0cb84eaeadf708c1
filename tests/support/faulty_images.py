"""A task with a planted fault: a bad image, log(0), a high rate, or a corrupt label."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.config.schema.base import field
from orbit_runner.config.schema.experiment import ExperimentConfig, TaskConfig
from orbit_runner.registry import TASKS
from orbit_runner.tasks.base import Task
from tests.support.toy import config_of

COUNT, BATCH = 96, 16
BAD = 45  # the index of the example with the fault
STEP, ROW = BAD // BATCH + 1, BAD % BATCH  # where it is first, because nothing is shuffled


class Log(tf_keras.layers.Layer):
    """The logarithm, which is -inf for a black image."""

    def call(self, inputs: Any) -> Any:
        return tf.math.log(inputs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FaultyConfig(TaskConfig):
    """Settings of the task."""

    fault: str = field("", help="image, log, label, target, root or rate")
    num_examples: int = field(COUNT, ge=1, help="size of the set")
    bad_example: int = field(BAD, ge=0, help="the index of the example with the fault")


class FaultyTask(Task):
    """Classifies small images, or estimates a number if the fault is in the target."""

    task_config: FaultyConfig

    def build_model(self) -> tf_keras.Model:
        """Builds a network with dropout, and a mask of -inf that is harmless."""
        layers, fault = tf_keras.layers, self.task_config.fault
        x = inputs = layers.Input([6, 6, 1])
        if fault == "log":
            x = Log(name="log")(x)
        if fault == "root":  # Its gradient is infinite at 0.
            shift = layers.Dense(1, use_bias=False, kernel_initializer="ones", name="shift")
            x = layers.Lambda(tf.sqrt, name="root")(shift(x))
        # One number reaches the layer that a high rate makes overflow: of several products, some
        # inf and some -inf, a processor's order of additions would make inf or NaN.
        filters, size = (1, 6) if fault == "rate" else (4, 3)
        x = layers.Conv2D(filters, size, name="conv")(x)
        x = layers.Flatten(name="flatten")(x)
        x = layers.Dense(8, name="hidden")(x)
        attention = layers.Lambda(_attention, name="attention")(x)
        x = layers.Lambda(lambda pair: pair[0] * pair[1], name="attended")([x, attention])
        x = layers.Dropout(0.3, name="dropout")(x)
        return tf_keras.Model(inputs, layers.Dense(self._classes, name="logits")(x))

    @property
    def _classes(self) -> int:
        return 1 if self.task_config.fault == "target" else 3

    def build_inputs(
        self, params: Any, input_context: Any = None, start_step: int = 0
    ) -> tf.data.Dataset:
        config = self.task_config
        x, y = images(config.fault, config.num_examples, config.bad_example)
        data = tf.data.Dataset.from_tensor_slices((x, y)).repeat()
        replicas = input_context.num_replicas_in_sync if input_context else 1
        batches = data.batch(BATCH // replicas, drop_remainder=True)
        return batches.skip(start_step * replicas)

    def example_losses(self, labels: tf.Tensor, model_outputs: tf.Tensor) -> tf.Tensor:
        if self._classes == 1:
            return tf.square(model_outputs[:, 0] - labels)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model_outputs)


TASKS.register("faulty", config=FaultyConfig, target=FaultyTask)

_BASE = {
    "task.name": "faulty",
    "task.train_data.global_batch_size": BATCH,
    "trainer.train_steps": 60,
    "trainer.checkpoint_interval": 2,
    "trainer.summary_interval": 1,
    "trainer.steps_per_loop": 1,
    "trainer.loss_upper_bound": 1e300,
    "trainer.optimizer_config.optimizer.type": "sgd",
    "trainer.optimizer_config.learning_rate.type": "constant",
    "trainer.optimizer_config.learning_rate.constant.learning_rate": 0.01,
    "runtime.distribution_strategy": "one_device",
    "runtime.seed": 17,
}
MIRRORED = {"runtime__distribution_strategy": "mirrored", "runtime__num_virtual_devices": 2}
_RATE = {"trainer__optimizer_config__learning_rate__constant__learning_rate": 1e30}


def faulty_config(fault: str, **changes: Any) -> ExperimentConfig:
    """Returns the config of a run with a fault, or without one if `fault` is ""."""
    if fault == "rate":
        return config_of(_BASE, task__fault=fault, **(_RATE | changes))
    return config_of(_BASE, **({"task__fault": fault} if fault else {}), **changes)


def images(fault: str = "", count: int = COUNT, bad: int = BAD) -> tuple[np.ndarray, np.ndarray]:
    """Returns images with their classes; that of `bad` has the fault."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0.1, 1.0, size=(count, 6, 6, 1)).astype(np.float32)
    y = rng.integers(0, 3, count)
    if fault == "image":
        x[bad, 3, 3] = np.inf
    if fault in ("log", "root"):
        x[bad] = 0.0
    if fault == "label":
        y[bad] = 99
    if fault == "target":
        y = y.astype(np.float32)
        y[bad] = np.nan
    return x, y


def _attention(x: tf.Tensor) -> tf.Tensor:
    mask = tf.fill(tf.shape(x[:, :1]), -np.inf)
    return tf.nn.softmax(tf.concat([mask, x], axis=-1))[:, 1:]
