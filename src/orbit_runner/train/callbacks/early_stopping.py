"""Early stopping: ends training when a metric is good enough or no longer improves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.config.schema.trainer import EarlyStopping
from orbit_runner.train.callbacks.base import Callback, Logs
from orbit_runner.train.callbacks.comparison import Comparison

if TYPE_CHECKING:
    from orbit_runner.train.run import Run


class EarlyStop(Callback):
    """Stops a run by `trainer.early_stopping`; its state is a variable in the checkpoint."""

    def __init__(self, rule: EarlyStopping, memory: tf.Variable) -> None:
        # `memory` is float64 [3]: best value, evaluations since then, step of the last evaluation.
        self._rule, self._memory = rule, memory
        self.comparison = Comparison(rule.metric, rule.metric_comp == "higher")

    def on_train_begin(self, run: Run) -> None:
        """Stops a resumed run that had already stopped early."""
        best, since, _ = self._memory.numpy()
        run.stop(self._stop_reason(best, best, since))

    def on_evaluate(self, run: Run, logs: Logs) -> None:
        """Compares a result with the previous ones, and stops the run if the rule is met."""
        value = self.comparison.value(logs)
        best, since, _ = self._memory.numpy()
        if self.comparison.is_better(value, best, self._rule.min_delta):
            best, since = value, 0
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
