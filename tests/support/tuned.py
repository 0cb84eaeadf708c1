"""The toy with several layers, one inside another, and batch normalization, to fine-tune."""

from __future__ import annotations

import dataclasses
from typing import Any

import tf_keras

from orbit_runner.config.schema.base import field
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.registry import TASKS
from tests.support.toy import ToyConfig, ToyTask, toy_config

LAYERS = ["first", "norm", "block", "block/inner", "w"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TunedConfig(ToyConfig):
    """Settings of the task."""

    dropout_rate: float = field(0.0, ge=0.0, lt=1.0, help="dropout after `block/inner`")


class TunedTask(ToyTask):
    """Layers `first`, `norm`, `block/inner` and `w`, of which the last one has `outputs` units."""

    task_config: TunedConfig

    def build_model(self) -> tf_keras.Model:
        layers = tf_keras.layers
        inner = layers.Dense(4, activation="tanh", name="inner")
        dropout = layers.Dropout(self.task_config.dropout_rate)
        outputs = layers.Dense(self.task_config.outputs, name="w", dtype="float32")
        return tf_keras.Sequential(
            [
                tf_keras.Input([3]),
                layers.Dense(5, name="first"),
                layers.BatchNormalization(momentum=0.5, name="norm"),
                tf_keras.Sequential([inner, dropout], name="block"),
                outputs,
            ],
            name="tuned",
        )


TASKS.register("tuned", config=TunedConfig, target=TunedTask)


def tuned_config(fine_tuning: str | None = None, **changes: Any) -> ExperimentConfig:
    """Returns the config; `fine_tuning` is YAML, `__` in a name stands for a dot."""
    settings = {"task__name": "tuned", **changes}
    if fine_tuning is not None:
        settings["trainer__fine_tuning"] = fine_tuning
    return toy_config(**settings)
