"""Builds the runner's own callbacks, as far as the config enables them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbit_runner.train.callbacks.average_checkpoints import AverageCheckpoints
from orbit_runner.train.callbacks.base import Callback
from orbit_runner.train.callbacks.best_checkpoint import BestCheckpoint
from orbit_runner.train.callbacks.comparison import Comparison, require_metric
from orbit_runner.train.callbacks.divergence import DivergenceGuard
from orbit_runner.train.callbacks.early_stopping import EarlyStop
from orbit_runner.train.callbacks.progress import DirectoryCheck, RecordWriter, SaveErrors
from orbit_runner.train.callbacks.pruning import Pruning
from orbit_runner.train.callbacks.summaries import Summaries
from orbit_runner.train.callbacks.thread_advice import ThreadAdvice
from orbit_runner.train.nonfinite.evaluation import NonFiniteEvaluations
from orbit_runner.utils.log import note

if TYPE_CHECKING:
    from orbit_runner.train.run import Run


def own_callbacks(run: Run, summaries: Summaries) -> list[Callback]:
    """Returns the runner's own callbacks in calling order; those of the config come after them.

    After a loop, records are written before the checks that may end the run. Orbit writes the
    record at the end of a loop, after all checks have passed.
    """
    callbacks: list[Callback | None] = []
    if run.trainer is not None:
        callbacks += [DirectoryCheck(run.model_dir), RecordWriter(summaries), ThreadAdvice()]
        if getattr(run.config.for_task.task, "pruning", None):
            callbacks.append(Pruning())
        callbacks.append(SaveErrors())
        if run.config.trainer.checks_divergence:
            callbacks.append(DivergenceGuard(run.config.trainer))
    if run.evaluator is not None:
        callbacks.append(NonFiniteEvaluations())
    callbacks += [run.best, run.averages, run.early_stop]
    return [callback for callback in callbacks if callback is not None]


def build_best_checkpoint(run: Run) -> BestCheckpoint | None:
    """Returns the callback that saves the best checkpoint, or None if it is disabled.

    Raises SettingError if evaluations do not report its metric.
    """
    trainer = run.config.trainer
    metric, subdir = trainer.best_checkpoint_eval_metric, trainer.best_checkpoint_export_subdir
    if run.evaluator is None or run.other_data or not (subdir and metric):
        return None
    _check_metric(run, metric, "trainer.best_checkpoint_eval_metric")
    return BestCheckpoint(
        Comparison(metric, trainer.best_checkpoint_metric_comp == "higher"),
        run.model_dir / subdir,
        run.state,
        run.conditions,
        # A process that only evaluates must not use the best result of the training process.
        memory=run.state.best if run.trainer is not None else None,
        workers=run.workers,
        keep=trainer.best_checkpoints_to_keep,
        note=note,
    )


def build_average_checkpoints(run: Run) -> AverageCheckpoints | None:
    """Returns the callback that saves averaged weights, or None if Model Garden would save none."""
    if run.evaluator is None or run.trainer is None or run.state.ema is None:
        return None
    # This runner's own experiments save the average in each checkpoint, and averaged weights in the
    # best checkpoint.
    if not run.config.is_official:
        return None
    return AverageCheckpoints(
        run.model_dir,
        run.state,
        run.conditions,
        keep=run.config.trainer.max_to_keep,
        workers=run.workers,
    )


def build_early_stop(run: Run) -> EarlyStop | None:
    """Returns the callback that stops training early, or None if it is disabled.

    Raises SettingError if evaluations do not report its metric.
    """
    rule = run.config.trainer.early_stopping
    if rule is None or run.evaluator is None or run.trainer is None:
        return None
    _check_metric(run, rule.metric, "trainer.early_stopping.metric")
    return EarlyStop(rule, run.state.early_stopping)


def _check_metric(run: Run, metric: str, setting: str) -> None:
    assert run.evaluator is not None
    if not run.evaluator.gathers:
        require_metric(metric, run.evaluator.metric_names, setting)
