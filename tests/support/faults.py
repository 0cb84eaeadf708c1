"""The toy with one bad example, so that one step of training is not finite."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.checkpoint.record import CheckpointRecord, read_record
from orbit_runner.config.schema.base import field
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.registry import TASKS
from tests.support.toy import ToyConfig, ToyTask, make_strategy, session_of, toy_config


@dataclasses.dataclass(frozen=True, kw_only=True)
class FaultyConfig(ToyConfig):
    """Settings of the toy with a fault."""

    num_examples: int = field(20_000, ge=1, help="size of both sets")
    fault: str = field("feature", help="feature, label, zero, large, slot, or none")
    bad_examples: list[int] = field((5003,), help="the examples with the fault")


class FaultyToy(ToyTask):
    """The toy on the logarithm of its features; examples that are 0 have none."""

    task_config: FaultyConfig

    def build_model(self) -> tf_keras.Model:
        inputs = tf_keras.Input([3])
        x = tf_keras.layers.Lambda(tf.math.log, name="log")(inputs)
        return tf_keras.Model(inputs, tf_keras.layers.Dense(1, use_bias=False, name="w")(x))

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        features, labels = super().arrays()
        features, rows = np.abs(features) + 0.5, list(self.task_config.bad_examples)
        if self.task_config.fault == "label":
            labels[rows] = np.nan
        elif self.task_config.fault == "large":
            labels[rows] = 1e4
        elif self.task_config.fault == "slot":  # Only the square of the gradient overflows.
            features[rows], labels[rows] = np.exp(80.0), 1e19
        elif self.task_config.fault != "none":
            features[rows] = 0.0 if self.task_config.fault == "zero" else np.nan
        return features, labels


TASKS.register("faulty_toy", config=FaultyConfig, target=FaultyToy)


def faulty_config(**changes: Any) -> ExperimentConfig:
    """Returns a config of one long loop, in which step 626 is not finite."""
    base = {
        "task__name": "faulty_toy",
        "trainer__train_steps": 1000,
        "trainer__steps_per_loop": 1000,
        "trainer__summary_interval": 1000,
        "trainer__checkpoint_interval": 250,
        "trainer__validation_interval": 300,
        "trainer__validation_steps": 3,
    }
    return toy_config(**{**base, **changes})


def first_bad_step(config: ExperimentConfig, model_dir: Path, strategy: str) -> int:
    """Returns the first step that is not finite, by looking at each step from the first on."""
    task = TASKS.get(config.task.name).load()(config.task)
    run = session_of(config, model_dir, make_strategy(strategy), task=task)
    assert run.trainer is not None
    run.checkpoints.restore_or_initialize(run.task)
    with run.strategy.scope():
        while run.step < config.trainer.train_steps:
            loss = run.trainer.train(tf.constant(1))["training_loss"]
            values = [loss, *(weight.numpy() for weight in run.model.weights)]
            if not all(np.isfinite(value).all() for value in values):
                return run.step
    return 0


def record_of(model_dir: Path, step: int) -> CheckpointRecord:
    return read_record(model_dir / "checkpoints" / f"ckpt-{step}.json")
