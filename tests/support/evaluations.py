"""Models without a run directory: their evaluation, and random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.determinism.numerics import configure_numerics
from orbit_runner.registry import TASKS
from orbit_runner.tasks.adapter import adapt
from orbit_runner.train.build_state import build_state
from orbit_runner.train.engine import EngineBuilder
from tests.support.toy import make_strategy


def evaluate(
    config: ExperimentConfig, strategy: str | tf.distribute.Strategy = "one_device"
) -> tuple[Any, dict[str, float]]:
    """Returns the model with its initial weights, and the results of an evaluation."""
    if isinstance(strategy, str):
        strategy = make_strategy(strategy)
    configure_numerics(config.runtime)
    with strategy.scope():
        task = TASKS.get(config.task.name).load()(config.task)
    adapter = adapt(task)
    state = build_state(config, adapter, strategy)
    steps = adapter.validation_steps(config.task.validation_data, config.trainer.validation_steps)
    with strategy.scope():
        evaluator = EngineBuilder(config, adapter, strategy, state, "").build_evaluator(steps)
    logs = evaluator.evaluate(tf.constant(steps))
    return state.model, {name: float(value) for name, value in logs.items()}


def random_model(task: Any) -> Any:
    """Returns the model of a task with random weights, so that its outputs differ."""
    model, generator = task.build_model(), np.random.default_rng(2)
    for variable in model.trainable_variables:
        variable.assign(generator.normal(size=variable.shape))
    return model
