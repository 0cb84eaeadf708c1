"""Pruning, for models that a task has wrapped for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orbit_runner.train.callbacks.base import Callback, Logs

if TYPE_CHECKING:
    from orbit_runner.train.run import Run


class Pruning(Callback):
    """Calls Model Garden's action, which prunes and writes its summaries."""

    _action: Any = None

    def on_train_begin(self, run: Run) -> None:
        """Makes the action, which reads the step of pruning."""
        from official.core import actions

        # It reads the step from there.
        run.state.model.optimizer = run.state.optimizer
        self._action = actions.PruningAction(
            str(run.model_dir), run.state.model, run.state.optimizer
        )

    def on_loop_end(self, run: Run, logs: Logs) -> None:
        """Prunes."""
        self._action(logs)
