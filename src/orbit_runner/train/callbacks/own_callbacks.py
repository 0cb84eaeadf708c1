"""The runner's own callbacks; that of the best checkpoint is in `best_checkpoint.py`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from orbit_runner.config.schema.trainer import EarlyStopping
from orbit_runner.distribute.process_group import Workers
from orbit_runner.errors import SettingError, unknown_name_message
from orbit_runner.state.train_state import TrainState
from orbit_runner.train.callbacks.base import Callback, Logs, RunView
from orbit_runner.train.callbacks.best_checkpoint import BestCheckpoint, Comparison
from orbit_runner.train.request import RunRequest

if TYPE_CHECKING:
    from orbit_runner.train.evaluator import Evaluator


def make_own_callbacks(
    request: RunRequest,
    state: TrainState,
    evaluator: Evaluator | None,
    workers: Workers,
) -> list[Callback]:
    """Returns the runner's own callbacks, in the order in which they are called.

    Raises SettingError if evaluations do not report the metric that a setting names.
    """
    callbacks: list[Callback] = []
    settings = request.config.trainer
    if request.trains and getattr(request.config.for_task.task, "pruning", None):
        callbacks.append(Pruning())
    metric = settings.best_checkpoint_eval_metric
    subdir = settings.best_checkpoint_export_subdir
    # Also if the run only trains: their states, which a later start needs, are in checkpoints.
    if (request.trains or request.follows) and subdir and metric:
        _require_metric(evaluator, metric, "trainer.best_checkpoint_eval_metric")
        callbacks.append(
            BestCheckpoint(
                Comparison(metric, settings.best_checkpoint_metric_comp == "higher"),
                request.model_dir / subdir,
                state,
                trains=request.trains,
                workers=workers,
                keep=settings.best_checkpoints_to_keep,
            )
        )
    if request.trains and (rule := settings.early_stopping) is not None:
        _require_metric(evaluator, rule.metric, "trainer.early_stopping.metric")
        callbacks.append(EarlyStop(rule, evaluates=evaluator is not None))
    return callbacks


def _require_metric(evaluator: Evaluator | None, name: str, setting: str) -> None:
    """Raises SettingError if it is known that evaluations do not report a metric."""
    if evaluator is None or evaluator.gathers or name in evaluator.metric_names:
        return
    raise SettingError(
        setting,
        unknown_name_message("metric", name, evaluator.metric_names),
        code="unknown-name",
    )


class Pruning(Callback):
    """Calls Model Garden's `PruningAction`, which prunes the model and writes summaries."""

    _action: Any = None

    def on_train_begin(self, run: RunView) -> None:
        """Creates the action."""
        from official.core import actions

        # The action reads the pruning step from the model's optimizer.
        run.state.model.optimizer = run.state.optimizer
        self._action = actions.PruningAction(
            str(run.model_dir), run.state.model, run.state.optimizer
        )

    def on_loop_end(self, run: RunView, logs: Logs) -> None:
        """Calls the action."""
        self._action(logs)


class EarlyStop(Callback):
    """Stops a run by `trainer.early_stopping`; a run that only trains keeps its state."""

    def __init__(self, rule: EarlyStopping, *, evaluates: bool = True) -> None:
        self._rule = rule
        self._evaluates = evaluates
        self.comparison = Comparison(rule.metric, rule.metric_comp == "higher")
        self.forget()

    def forget(self) -> None:
        """Forgets all results, which are of other data than those that follow."""
        self._best = math.nan
        self._since = 0  # evaluations since the best one

    def on_train_begin(self, run: RunView) -> None:
        """Stops a resumed run that had already stopped early."""
        if self._evaluates:
            run.stop(self._stop_reason(self._best, self._best, self._since))

    def on_evaluate(self, run: RunView, logs: Logs) -> None:
        """Compares a result with the previous ones, and stops the run if the rule is met."""
        value = self.comparison.value(logs)
        if self.comparison.is_better(value, self._best, self._rule.min_delta):
            self._best, self._since = value, 0
        else:
            self._since += 1
        run.stop(self._stop_reason(value, self._best, self._since))

    def get_state(self) -> dict[str, object]:
        """Returns the best result, what it is a result of, and the evaluations since then."""
        best = None if math.isnan(self._best) else self._best
        return {"metric": self.comparison.name, "best": best, "since": self._since}

    def set_state(self, state: Any) -> None:
        """Restores the results, unless they are of another metric."""
        self.forget()
        if state["metric"] == self.comparison.name:
            self._best = math.nan if state["best"] is None else float(state["best"])
            self._since = int(state["since"])

    def _stop_reason(self, value: float, best: float, since: int) -> str:
        """Returns the reason to stop, or "" to continue."""
        rule = self._rule
        if rule.threshold is not None and math.isfinite(value):
            reached = value >= rule.threshold if self.comparison.higher else value <= rule.threshold
            if reached:
                return f"{rule.metric} {value:.4g} reached {rule.threshold:g}"
        if rule.patience is not None and since >= rule.patience:
            if math.isnan(best):
                return f"{rule.metric} was NaN or infinite at all {since} evaluations"
            return f"{rule.metric} was no better than {best:.4g} for {since} evaluations"
        return ""
