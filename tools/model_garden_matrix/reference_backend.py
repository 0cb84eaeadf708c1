"""Runs the same stages in Model Garden's own runner, to show which runner causes a failure."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orbit_runner.model_garden import catalogue
from tools.model_garden_matrix.orbit_runner_backend import report_when_built
from tools.model_garden_matrix.stages import STEPS, ReportStage

# The task of this config is not registered: the driver creates it.
_DRIVERS = {
    "official.recommendation.ranking.configs.config": "official.recommendation.ranking.train"
}


def run(
    name: str, overrides: Callable[[], dict[str, Any]], folder: Path, report_stage: ReportStage
) -> None:
    """Builds the registered config; then builds, trains and evaluates the model with its recipe.

    Args:
        name: The registered name.
        overrides: Writes the data, and returns the overrides for the recipe.
        folder: The output directory.
        report_stage: Called with the name of each completed stage.
    """
    module = catalogue.experiments()[name].module
    importlib.import_module(module)
    from official.core import exp_factory, train_lib

    params = exp_factory.get_exp_config(name)
    report_stage("resolves")
    params.override(overrides(), is_strict=True)
    params.validate()
    params.lock()
    _import_parts(module)
    strategy, task = _prepare(params, folder / "run")
    report_when_built(task, report_stage)
    loops = itertools.count(1)
    train_lib.run_experiment(
        distribution_strategy=strategy,
        task=task,
        mode="train_and_eval",
        params=params,
        model_dir=str(folder / "run"),
        train_actions=[lambda _: report_stage("trains") if next(loops) >= STEPS else None],
        eval_actions=[lambda _: report_stage("evaluates")],
    )


def _prepare(params: Any, model_dir: Path) -> tuple[Any, Any]:
    import tensorflow as tf
    from official.core import task_factory

    _import_task(type(params.task))
    model_dir.mkdir()
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        return strategy, task_factory.get_task(params.task, logging_dir=str(model_dir))


def _import_task(config: type) -> None:
    """Imports what a driver of the task's project imports: the task and its parts."""
    registering = catalogue.task_modules(config.__name__, config.__module__)[:1]
    for module in registering or filter(None, [_DRIVERS.get(config.__module__)]):
        importlib.import_module(module)
    _import_parts(config.__module__)


def _import_parts(config_module: str) -> None:
    for module in catalogue.part_modules(config_module):
        # A failed import matters only to experiments that use the module.
        try:
            importlib.import_module(module)
        except Exception as error:
            print(f"{module}: {error}")
