"""Builds the trainer whose class a gin binding sets, as in Model Garden."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from orbit_runner.config.schema.runtime import LOGICAL_REPLICAS, RuntimeConfig
from orbit_runner.determinism.numerics import seed_everything
from orbit_runner.errors import SettingError
from orbit_runner.utils.log import phase


def gin_sets_trainer() -> bool:
    """Returns whether a gin binding sets the class of the trainer."""
    gin = sys.modules.get("gin")
    if gin is None:
        return False
    try:
        gin.query_parameter("create_trainer.trainer_cls")
    except ValueError:
        return False
    return True


def build_gin_trainer(
    params: Any,
    runtime: RuntimeConfig,
    strategy: tf.distribute.Strategy,
    task: Any,
    build_exporter: Callable[[], Any],
    *,
    train: bool,
    evaluate: bool,
) -> Any:
    """Returns a trainer of the class that a gin binding sets, created in the strategy's scope.

    `params` is a config of Model Garden's class. `build_exporter` is called in the scope, and
    returns the exporter of the best checkpoint. Raises `SettingError` if the run has logical
    replicas.
    """
    from official.core import train_utils

    if runtime.logical_replicas:
        raise SettingError(LOGICAL_REPLICAS, "is not supported with a custom trainer; omit it")
    phase("building the model")
    # As for this runner's own trainer, because deterministic random ops fail without a seed.
    seed_everything(runtime.seed, keep_objects=True)
    with strategy.scope():
        return train_utils.create_trainer(
            params, task, train=train, evaluate=evaluate, checkpoint_exporter=build_exporter()
        )
