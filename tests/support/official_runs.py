"""Runs experiments of Model Garden as the command line does, but in this process."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tf_keras

from orbit_runner.determinism.numerics import configure_numerics
from orbit_runner.model_garden.loading import from_model_garden
from orbit_runner.tasks.adapter import build_task
from orbit_runner.train.callbacks.base import Callback
from orbit_runner.train_lib import run_experiment
from tests.support.toy import Notes, make_strategy


def run_official(
    params: Any, folder: Path, mode: str = "train_and_eval", strategy: str = "one_device",
    task_class: Any = None, notes: Notes | None = None, callbacks: Sequence[Callback] = (),
    logical_replicas: int = 0, **trainer: Any,
) -> tuple[tf_keras.Model, dict[str, Any]]:  # fmt: skip
    config = from_model_garden(params)
    config = config.replace(
        trainer=config.trainer.replace(**trainer),
        runtime=config.runtime.replace(logical_replicas=logical_replicas),
    )
    configure_numerics(config.runtime)
    scope = make_strategy(strategy)
    with scope.scope():
        task = task_class(params.task) if task_class else build_task(config, str(folder))
    heard = [*callbacks, *([] if notes is None else [notes])]
    with notes.listening_scope() if notes is not None else contextlib.nullcontext():
        return run_experiment(scope, task, mode, config, str(folder), callbacks=heard)
