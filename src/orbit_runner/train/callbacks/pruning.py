"""Prunes models that a task has wrapped for pruning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orbit_runner.train.callbacks.base import Callback, Logs

if TYPE_CHECKING:
    from orbit_runner.train.run import Run


class Pruning(Callback):
    """Calls Model Garden's `PruningAction`, which prunes the model and writes summaries."""

    _action: Any = None

    def on_train_begin(self, run: Run) -> None:
        """Creates the action."""
        from official.core import actions

        # The action reads the pruning step from the model's optimizer.
        run.state.model.optimizer = run.state.optimizer
        self._action = actions.PruningAction(
            str(run.model_dir), run.state.model, run.state.optimizer
        )

    def on_loop_end(self, run: Run, logs: Logs) -> None:
        """Calls the action."""
        self._action(logs)
