"""Exports the model at the end of a run: on the chief only, from the checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from orbit_runner.checkpoint.selection import BEST, choose_checkpoint, choose_weights
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.modes import TRAINING
from orbit_runner.errors import RunnerError, SettingError
from orbit_runner.serving.export import export
from orbit_runner.serving.loader import load_scope, require
from orbit_runner.train.run import Run
from orbit_runner.utils.log import note, phase


def exports_at_end(config: ExperimentConfig, task: Any, mode: str) -> bool:
    """Returns whether a run exports its model; raises `SettingError` if the task cannot do that."""
    if mode not in TRAINING or not config.trainer.export_subdir:
        return False
    try:
        require(task, "serving")
    except RunnerError as error:
        raise SettingError("trainer.export_subdir", str(error)) from error
    return True


def export_at_end(run: Run) -> None:
    """Exports the trained model. All workers must call it, outside of the strategy's scope.

    The chief builds the model again without the strategy, as `runner export` does, so that nothing
    in it waits for another worker. The other workers wait for the chief, because a worker that
    exits early counts as failed. Raises `RunnerError` if the export fails.
    """
    if tf.distribute.has_strategy():
        raise RunnerError("trainer.export_subdir: call run_experiment outside of strategy.scope()")
    problem: Exception | None = None
    if run.workers.is_chief:
        try:
            _export(run)
        except Exception as error:
            problem = error
    failed = run.workers.of_chief(int(problem is not None))
    if isinstance(problem, RunnerError):
        raise RunnerError(
            "trainer.export_subdir: the run is complete and saved, but the export failed: "
            f"{problem}\nto try again, run `runner export {run.model_dir}`"
        ) from problem
    if problem is not None:
        raise problem
    if failed:
        raise RunnerError("trainer.export_subdir: the export failed on the chief; see its output")


def _export(run: Run) -> None:
    trainer, directory = run.config.trainer, run.model_dir
    asked = BEST if trainer.export_checkpoint == BEST else None
    best = trainer.best_checkpoint_export_subdir
    choice = choose_checkpoint(directory, asked, best, note)
    averages = trainer.optimizer_config.ema is not None
    weights = choose_weights(trainer.export_weights, averages=averages, choice=choice)
    folder = directory / trainer.export_subdir
    # On the CPU, because an accelerator may not have the memory for a second model.
    loaded = load_scope(run.config, run.task, choice, weights, device="CPU:0")
    with _graphs(), loaded as model:
        phase(f"exporting to {folder}")
        record = export(model, run.config, directory, folder, replaces=True)
    note(f"exported step {record['step']} to {record['path']}")


@contextlib.contextmanager
def _graphs() -> Iterator[None]:
    """Runs functions as graphs, even in an eager run."""
    eager = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(False)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(eager)
