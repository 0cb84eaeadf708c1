"""The same by Model Garden's own runner, to tell whose failure a failure is."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orbit_runner.model_garden import catalogue
from tools.model_garden_matrix.orbit_runner_backend import told_when_built
from tools.model_garden_matrix.stages import STEPS, Reached

# Its task is in no registry: the driver beside it makes it.
_DRIVERS = {
    "official.recommendation.ranking.configs.config": "official.recommendation.ranking.train"
}


def run(name: str, overrides: Callable[[], dict[str, Any]], folder: Path, reached: Reached) -> None:
    """Makes its config; then builds, trains and evaluates it as the recipe has it.

    Args:
        name: The name that it is registered under.
        overrides: Makes the data, and returns the overrides for them.
        folder: Where to write.
        reached: Is told of each stage that is done.
    """
    module = catalogue.experiments()[name].module
    importlib.import_module(module)
    from official.core import exp_factory, train_lib

    params = exp_factory.get_exp_config(name)
    reached("resolves")
    params.override(overrides(), is_strict=True)
    params.validate()
    params.lock()
    _import_parts(module)
    strategy, task = _prepared(params, folder / "run")
    told_when_built(task, reached)
    loops = itertools.count(1)
    train_lib.run_experiment(
        distribution_strategy=strategy,
        task=task,
        mode="train_and_eval",
        params=params,
        model_dir=str(folder / "run"),
        train_actions=[lambda _: reached("trains") if next(loops) >= STEPS else None],
        eval_actions=[lambda _: reached("evaluates")],
    )


def _prepared(params: Any, model_dir: Path) -> tuple[Any, Any]:
    import tensorflow as tf
    from official.core import task_factory

    _import_task(type(params.task))
    model_dir.mkdir()
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        return strategy, task_factory.get_task(params.task, logging_dir=str(model_dir))


def _import_task(config: type) -> None:
    """Imports what a driver of the task's project would: the task, and what that looks up."""
    registering = catalogue.task_modules(config.__name__, config.__module__)[:1]
    for module in registering or filter(None, [_DRIVERS.get(config.__module__)]):
        importlib.import_module(module)
    _import_parts(config.__module__)


def _import_parts(of: str) -> None:
    for module in catalogue.part_modules(of):
        # One that fails is missed only by an experiment that names it.
        try:
            importlib.import_module(module)
        except Exception as error:
            print(f"{module}: {error}")
