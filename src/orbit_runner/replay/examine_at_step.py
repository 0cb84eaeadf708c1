"""A callback that examines one step of a run in the middle of training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from orbit_runner.train.callbacks.base import Callback, Logs

if TYPE_CHECKING:
    from orbit_runner.train.run import Run


class StepExamined(Exception):
    """Ends a run after the step was examined, before that step is taken."""


class ExamineAtStep(Callback):
    """Calls a function before the run takes a step for the first time.

    `check` is called when the run begins, so that mistakes are reported before any step is taken.
    With `stops`, the run ends with `StepExamined` afterward; otherwise, it continues.
    """

    def __init__(
        self,
        step: int,
        examine: Callable[[Run], Any],
        *,
        stops: bool,
        check: Callable[[Run], Any] = lambda run: None,
    ) -> None:
        self._step, self._examine, self._stops, self._check = step, examine, stops, check
        self.is_done = False

    def on_run_begin(self, run: Any) -> None:
        """Makes a loop end before the step."""
        self._check(run)
        run.plan = dataclasses.replace(run.plan, pauses=(self._step - 1,))

    def on_train_begin(self, run: Any) -> None:
        """Examines the step if the run starts with it."""
        self._examine_if_due(run)

    def on_loop_end(self, run: Any, logs: Logs) -> None:
        """Examines the step if it comes next."""
        self._examine_if_due(run)

    def _examine_if_due(self, run: Run) -> None:
        if self.is_done or run.step != self._step - 1:
            return
        self.is_done = True
        self._examine(run)
        if self._stops:
            raise StepExamined
