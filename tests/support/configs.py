"""Configs from settings by dotted path; imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.experiment import ExperimentConfig

# The settings that the runs of several tasks share.
SHORT_RUN: Mapping[str, Any] = {
    "trainer.train_steps": 24,
    "trainer.validation_interval": 12,
    "trainer.checkpoint_interval": 8,
    "trainer.summary_interval": 12,
    "trainer.optimizer_config.optimizer.type": "adam",
    "trainer.optimizer_config.learning_rate.type": "constant",
    "trainer.optimizer_config.learning_rate.constant.learning_rate": 0.01,
    "runtime.distribution_strategy": "one_device",
    "runtime.seed": 17,
}


def keep_best(metric: str, comparison: str = "lower") -> dict[str, str]:
    """Returns the settings that keep the checkpoint with the best value of a metric."""
    return {
        "trainer__best_checkpoint_export_subdir": "best",
        "trainer__best_checkpoint_eval_metric": metric,
        "trainer__best_checkpoint_metric_comp": comparison,
    }


def config_of(base: Mapping[str, Any], **changes: Any) -> ExperimentConfig:
    """Returns a config; `__` in a name stands for a dot, None for `null`."""
    settings = {**base, **{key.replace("__", "."): value for key, value in changes.items()}}
    flags = tuple(
        (f"--{path}", path, "null" if value is None else str(value))
        for path, value in settings.items()
    )
    return resolve(Request(flags=flags)).config


def in_both_sections(**settings: Any) -> dict[str, Any]:
    """Returns settings of the data for training and for validation, as changes of a config."""
    return {
        f"task__{section}__{name}": value
        for section in ("train_data", "validation_data")
        for name, value in settings.items()
    }
