"""Exports the model at the end of a run: on the chief only, from the checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.checkpoint.latest_checkpoint import choose_checkpoint, choose_weights
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.modes import TRAINING
from orbit_runner.config.schema.trainer import SAVED_MODEL
from orbit_runner.errors import ExportFailed, RunnerError, SettingError, first_line
from orbit_runner.serving.export import export_all
from orbit_runner.serving.export_directory import missing_packages
from orbit_runner.serving.loader import load_scope, require_method
from orbit_runner.train.run import Run
from orbit_runner.utils.log import note

if TYPE_CHECKING:
    from orbit_runner.train.callbacks.base import Logs


def exports_at_end(config: ExperimentConfig, task: tf.Module, mode: str) -> bool:
    """Returns whether a run exports its model; raises `SettingError` if the task cannot do that."""
    if mode not in TRAINING or not config.trainer.export_subdir:
        return False
    formats = _formats(config)
    if SAVED_MODEL in formats:
        try:
            require_method(task, "serving")
        except RunnerError as error:
            raise SettingError("trainer.export_subdir", str(error), code=error.code) from error
    if problem := missing_packages(formats):
        raise SettingError("trainer.export_formats", problem, code="not-supported")
    return True


def export_at_end(run: Run, logs: Logs) -> None:
    """Exports the trained model. All workers must call it, outside of the strategy's scope.

    The chief builds the model again without the strategy, as `runner export` does, so that nothing
    in it waits for another worker. The other workers wait for the chief, because a worker that
    exits early counts as failed. `logs` are the result of the run. Raises `ExportFailed`.
    """
    if tf.distribute.has_strategy():
        raise RunnerError(
            "call run_experiment outside of strategy.scope()",
            path="trainer.export_subdir",
            code="not-supported",
        )
    reason = "see the output of the chief"
    cause: Exception | None = None
    if run.workers.is_chief:
        try:
            _export(run)
        except Exception as error:  # The code of the model and converters raise any error.
            cause = error
            is_expected = isinstance(error, RunnerError)
            reason = str(error) if is_expected else f"{type(error).__name__}: {first_line(error)}"
            reason += f"\nto try again, run `runner export {run.model_dir}`"
    if run.workers.broadcast_from_chief(int(cause is not None)):
        raise ExportFailed(reason, model=run.model, logs=logs) from cause


def _export(run: Run) -> None:
    trainer = run.config.trainer
    directory = run.model_dir
    best = trainer.best_checkpoint_export_subdir
    choice = choose_checkpoint(directory, None, best, note)
    averages = run.config.averages_weights
    weights = choose_weights(None, averages=averages, choice=choice)
    export_dir = directory / trainer.export_subdir
    # On the CPU, because an accelerator may not have the memory for a second model.
    formats = _formats(run.config)
    loaded = load_scope(
        *(run.config, run.task, choice, weights),
        device="CPU:0",
        needs_signatures=SAVED_MODEL in formats,
    )
    with _graph_execution_scope(), loaded as model:
        records = export_all(
            formats, model, run.adapter, run.config, directory, export_dir, replaces=True
        )
    for record in records:
        note(f"exported step {record['step']} to {record['path']}")


def _formats(config: ExperimentConfig) -> Sequence[str]:
    return config.trainer.export_formats or (SAVED_MODEL,)


@contextlib.contextmanager
def _graph_execution_scope() -> Iterator[None]:
    """Runs functions as graphs, even in an eager run."""
    eager = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(False)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(eager)
