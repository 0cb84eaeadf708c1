"""Runs the stages of an experiment in this runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from orbit_runner import Callback
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.jobs.preflight import check_before_start
from tools.model_garden_matrix.stages import STEPS, ReportStage

_MODE = "train_and_eval"


def run(
    name: str, overrides: Callable[[], dict[str, Any]], folder: Path, report_stage: ReportStage
) -> None:
    """Resolves the registered experiment; then builds, trains and evaluates it with its recipe.

    Args:
        name: The registered name.
        overrides: Writes the data, and returns the overrides for the recipe.
        folder: The output directory.
        report_stage: Called with the name of each completed stage.
    """
    resolve(Request(experiment=f"official/{name}"))
    report_stage("resolves")
    small = folder / "small.yaml"
    small.write_text(yaml.safe_dump(overrides()))
    resolved = resolve(Request(experiment=f"official/{name}", config_files=(str(small),)))
    model_dir = folder / "run"
    model_dir.mkdir()  # as the run lock does; some tasks write to it when they are created
    check_before_start(resolved, _MODE, model_dir)
    from orbit_runner import train_lib

    strategy, task = train_lib.prepare(resolved.config, str(model_dir), mode=_MODE)
    report_when_built(task, report_stage)
    train_lib.run_experiment(
        strategy, task, _MODE, resolved.config, str(model_dir), callbacks=[_Stages(report_stage)]
    )


def report_when_built(task: Any, report_stage: ReportStage) -> None:
    """Makes a task call `report_stage` when it has built its model."""
    build = task.build_model

    def build_model(*arguments: Any, **named: Any) -> Any:
        model = build(*arguments, **named)
        report_stage("builds")
        return model

    task.build_model = build_model


class _Stages(Callback):
    def __init__(self, report_stage: ReportStage) -> None:
        self._report_stage = report_stage

    def on_loop_end(self, run: Any, logs: Mapping[str, Any]) -> None:
        if run.step >= STEPS:
            self._report_stage("trains")

    def on_evaluate(self, run: Any, logs: Mapping[str, Any]) -> None:
        self._report_stage("evaluates")
