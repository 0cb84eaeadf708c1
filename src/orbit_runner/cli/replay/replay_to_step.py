"""Repeats a run up to a step, examines that step, and compares the replay with the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.cli.replay.plan import ReplayPlan
from orbit_runner.cli.rerun import rerun
from orbit_runner.compare.histories import StepVerdict, judge_step
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.history import read_history
from orbit_runner.step.examine import ExamineAtStep, StepExamined, check_examinable, examine_step
from orbit_runner.step.results import Examination
from orbit_runner.train.callbacks.base import Callback


@dataclasses.dataclass(frozen=True)
class Replay:
    """A replayed step, and whether it is the one that the run took."""

    examination: Examination
    own: StepVerdict


def replay_to_step(
    plan: ReplayPlan,
    directory: Path,
    progress: Callback,
    *,
    layers: Sequence[str] = (),
    on_examined: Callable[[Any, Examination], None] = lambda run, examination: None,
) -> Replay:
    """Repeats a run up to a step and examines it.

    `directory` is the new run directory, with the checkpoint to start from. `on_examined` is called
    with the run before the step, and the examination of the step. If the run ends before the step,
    raises the error that ended it, or `RunnerError`.
    """
    found: list[Examination] = []

    def examine(run: Any) -> None:
        found.append(examine_step(run, layers=layers))
        on_examined(run, found[0])

    def check(run: Any) -> None:
        check_examinable(run, layers)

    done = rerun(
        plan.resolved,
        plan.history,
        directory,
        progress,
        step=plan.last,
        after=plan.after,
        callbacks=[ExamineAtStep(plan.step, examine, stops=not plan.continues, check=check)],
    )
    error = None if isinstance(done.error, StepExamined) else done.error
    if not found:
        raise error or RunnerError(f"--step: the run ended before step {plan.step}")
    own = judge_step(
        plan.history,
        read_history(directory),
        step=plan.step,
        after=plan.after,
        end=plan.last if plan.continues else plan.step - 1,
        summary_interval=plan.resolved.config.trainer.summary_interval,
        error=error,
    )
    return Replay(found[0], own)
