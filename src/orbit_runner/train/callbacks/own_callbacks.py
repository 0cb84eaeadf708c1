"""The runner's own callbacks, except for that of the best checkpoint."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import tensorflow as tf

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.manager import RunConditions, record_of
from orbit_runner.checkpoint.writer import CheckpointWriter
from orbit_runner.config.schema.trainer import EarlyStopping
from orbit_runner.distribute.process_group import Workers
from orbit_runner.state.train_state import TrainState
from orbit_runner.train.callbacks.base import Callback, Logs, RunView
from orbit_runner.train.callbacks.best_checkpoint import Comparison


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
    """Stops a run by `trainer.early_stopping`; its state is a variable in the checkpoint."""

    def __init__(self, rule: EarlyStopping, memory: tf.Variable) -> None:
        # `memory` is float64 [3]: best value, evaluations since then, step of the last evaluation.
        self._rule = rule
        self._memory = memory
        self.comparison = Comparison(rule.metric, rule.metric_comp == "higher")

    def on_train_begin(self, run: RunView) -> None:
        """Stops a resumed run that had already stopped early."""
        best, since, _ = self._memory.numpy()
        run.stop(self._stop_reason(best, best, since))

    def on_evaluate(self, run: RunView, logs: Logs) -> None:
        """Compares a result with the previous ones, and stops the run if the rule is met."""
        value = self.comparison.value(logs)
        best, since, _ = self._memory.numpy()
        if self.comparison.is_better(value, best, self._rule.min_delta):
            best = value
            since = 0
        else:
            since += 1
        self._memory.assign(tf.constant([best, since, run.step], tf.float64))
        run.stop(self._stop_reason(value, best, since))

    def _stop_reason(self, value: float, best: float, since: float) -> str:
        """Returns the reason to stop, or "" to continue."""
        rule = self._rule
        if rule.threshold is not None and math.isfinite(value):
            reached = value >= rule.threshold if self.comparison.higher else value <= rule.threshold
            if reached:
                return f"{rule.metric} {value:.4g} reached {rule.threshold:g}"
        if rule.patience is not None and since >= rule.patience:
            if math.isnan(best):
                return f"{rule.metric} was NaN or infinite at all {int(since)} evaluations"
            return f"{rule.metric} was no better than {best:.4g} for {int(since)} evaluations"
        return ""


AVERAGES = "ema_checkpoints"


class AverageCheckpoints(Callback):
    """Saves a checkpoint of the averaged weights after each evaluation."""

    def __init__(
        self,
        model_dir: Path,
        state: TrainState,
        conditions: RunConditions,
        *,
        keep: int | None,  # the number of checkpoints to keep; None: all
        workers: Workers | None = None,  # None: this process only
    ) -> None:
        directory = CheckpointFolder(model_dir / AVERAGES, name="average_weights", keep=keep)
        self._writer = CheckpointWriter(state.checkpoint(), directory, workers=workers)
        self._state = state
        self._conditions = conditions

    def on_evaluate(self, run: RunView, logs: Logs) -> None:
        """Saves the averaged weights."""
        assert self._state.ema is not None
        with self._state.ema.applied_scope():
            self._writer.write(record_of(self._state, self._conditions))
