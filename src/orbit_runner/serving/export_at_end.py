"""The export at the end of a run: by the chief alone, from the checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from orbit_runner.checkpoint.selection import BEST, choose_checkpoint, choose_weights
from orbit_runner.errors import RunnerError, SettingError
from orbit_runner.serving.export import export
from orbit_runner.serving.loader import load_scope, require
from orbit_runner.train.run import Run
from orbit_runner.utils.log import note, phase


def check_exportable(task: Any) -> None:
    """Checks, before training, that a task says how it is exported.

    Args:
        task: The task.

    Raises:
        SettingError: It does not.
    """
    try:
        require(task, "serving")
    except RunnerError as error:
        raise SettingError("trainer.export_subdir", str(error)) from error


def export_at_end(run: Run) -> None:
    """Exports what training made; all workers have to call it, outside of the strategy's scope.

    The chief builds the model again by itself, as `runner export` does, so that nothing in it waits
    for another worker. The others wait until it is done: one that left would be missed.

    Args:
        run: The run, its last checkpoint saved.

    Raises:
        RunnerError: It cannot be exported.
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
            f"trainer.export_subdir: the run is done and saved, but not exported: {problem}\n"
            f"`runner export {run.model_dir}` tries that again"
        ) from problem
    if problem is not None:
        raise problem
    if failed:
        raise RunnerError("trainer.export_subdir: the chief could not export; it says why")


def _export(run: Run) -> None:
    trainer, directory = run.config.trainer, run.model_dir
    asked = BEST if trainer.export_checkpoint == BEST else None
    best = trainer.best_checkpoint_export_subdir
    choice = choose_checkpoint(directory, asked, best, note)
    averages = trainer.optimizer_config.ema is not None
    weights = choose_weights(trainer.export_weights, averages=averages, choice=choice)
    folder = directory / trainer.export_subdir
    # On the CPU: what training holds may leave no room for a second model on an accelerator.
    loaded = load_scope(run.config, run.task, choice, weights, device="CPU:0")
    with _graphs(), loaded as model:
        phase(f"writing {folder}")
        record = export(model, run.config, directory, folder, replaces=True)
    note(f"exported step {record['step']} to {record['path']}")


@contextlib.contextmanager
def _graphs() -> Iterator[None]:
    """Has functions traced, also in a run that is eager."""
    eager = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(False)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(eager)
