"""Plans a replay, examines its last step, and compares it with the run: `runner replay`.

The step is given, or it is the one at which the run diverged.

Does not import TensorFlow before the run is repeated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner import exit_codes
from orbit_runner.compare.histories import StepVerdict, judge_step
from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.errors import RunnerError
from orbit_runner.repeat.plan import Change, Repetition, read_repetition
from orbit_runner.repeat.rerun import rerun
from orbit_runner.run_directory.metric_records import Divergence
from orbit_runner.run_directory.run_reader import RunReader, read_history
from orbit_runner.step.examples import TrainingOrder
from orbit_runner.step.results import Examination
from orbit_runner.train.callbacks.base import Callback, Logs, RunView

if TYPE_CHECKING:
    from orbit_runner.jobs.train_job import Progress
    from orbit_runner.step.bad_step import BadStep

# A replay continues by at most this number of steps.
_MOST_STEPS = 300


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplayPlan:
    """How a step is replayed."""

    steps: Repetition
    step: int  # the step to examine, or that at which it was detected that the run diverged
    continues: bool = False  # whether the replay takes the step, and all up to the last of `steps`
    divergence: Divergence | None = None  # how the run diverged, if that step is to be found


def plan_replay(
    run: Path, step: int | None, imports: tuple[str, ...] = (), changes: tuple[Change, ...] = ()
) -> ReplayPlan:
    """Returns how a step of a run is replayed; None for the step at which it diverged.

    A given step is replayed up to the next checkpoint or record of the run if that is near; the
    other one is searched from the checkpoint before it. `changes` are settings of the machine.
    Raises `RunnerError` if the run has no such step, or if a single process cannot repeat it.
    """
    steps = read_repetition(run, imports, changes)
    config = steps.config.config
    if config.runtime.traits.uses_tpu:
        raise RunnerError(
            "was trained on TPUs, whose ops cannot be observed one by one\n"
            "use `runner batch` to see the examples of the step",
            path="RUN",
            code="not-repeatable",
        )
    if step is None:
        return _plan_search(steps)
    train_steps = config.trainer.train_steps
    if train_steps and step > train_steps:
        raise RunnerError(
            f"got {step}, allowed: 1 to {train_steps}, the last step of the run "
            "(trainer.train_steps)",
            path="--step",
            code="unknown-step",
        )
    last = _next_recorded_step(steps.history, step)
    steps = steps.between(steps.intact_step(step - 1), last or step)
    steps = dataclasses.replace(steps, config=_allow_losses_before(steps.config, step))
    return ReplayPlan(steps=steps, step=step, continues=last is not None)


def _plan_search(steps: Repetition) -> ReplayPlan:
    divergence = steps.history.log.divergence()
    if divergence is None:
        raise RunnerError(
            f"{steps.run} did not diverge, as far as its records say\n"
            "to examine a step, use --step=N instead of --find",
            path="--find",
            code="unknown-step",
        )
    first = divergence.first_above or divergence.step
    steps = steps.between(steps.intact_step(first - 1), divergence.step)
    return ReplayPlan(steps=steps, step=divergence.step, divergence=divergence)


def _allow_losses_before(resolved: ResolvedConfig, step: int) -> ResolvedConfig:
    """Returns a config whose loss has no bound before a step, because the run reached that step.

    The loss of a loop is that of its steps, and the loops of a replay end at other steps.
    """
    trainer = resolved.config.trainer
    if trainer.rolls_back:
        return resolved  # The weights depend on when the run returned to a checkpoint.
    begin = max(step, trainer.recovery_begin_steps)
    config = resolved.config.replace(trainer=trainer.replace(recovery_begin_steps=begin))
    return dataclasses.replace(resolved, config=config)


def _next_recorded_step(history: RunReader, step: int) -> int | None:
    """Returns the step up to which the replay can be compared; None if none is near."""
    for recorded_steps in (history.fingerprints, history.losses):
        recorded = min((number for number in recorded_steps if number >= step), default=None)
        if recorded is not None and recorded - step <= _MOST_STEPS:
            return recorded
    return None


@dataclasses.dataclass(frozen=True)
class Replay:
    """A replayed step."""

    step: int
    examination: Examination | None  # what was found in it; None if it cannot be examined
    own: StepVerdict | None = None  # whether the run took this step; None after a search
    finding: str = ""  # what is wrong with a step that was found
    obstacle: str = ""  # why it cannot be examined
    examples: Sequence[int] = ()  # of a step that cannot be examined, if they are known


class StepExamined(Exception):
    """Ends a run after a step was examined, before that step is taken."""


class ExamineAtStep(Callback):
    """Examines a step before the run takes it for the first time.

    With `stops`, the run ends with `StepExamined` afterward; otherwise, it continues.
    """

    def __init__(self, step: int, *, stops: bool) -> None:
        self._step = step
        self._stops = stops
        self.examination: Examination | None = None

    def on_run_begin(self, run: RunView) -> None:
        """Makes a loop end before the step; raises `RunnerError` if it cannot be examined."""
        from orbit_runner.step.examine import check_examinable

        check_examinable(run)
        run.stops.pause_at(self._step - 1)

    def on_train_begin(self, run: RunView) -> None:
        """Examines the step if the run starts with it."""
        self._examine_if_due(run)

    def on_loop_end(self, run: RunView, logs: Logs) -> None:
        """Examines the step if it comes next."""
        self._examine_if_due(run)

    def _examine_if_due(self, run: RunView) -> None:
        if self.examination is not None or run.step != self._step - 1:
            return
        from orbit_runner.step.examine import examine_step

        self.examination = examine_step(run)
        if self._stops:
            raise StepExamined


class ExamineBadStep(Callback):
    """Finds the step at which a run diverged, examines it, and ends the run with `StepExamined`."""

    def __init__(self, divergence: Divergence) -> None:
        self._divergence = divergence
        self.bad_step: BadStep | None = None
        self.obstacle = ""  # why the step cannot be examined
        self.examination: Examination | None = None

    def on_train_begin(self, run: RunView) -> None:
        """Finds and examines the step."""
        from orbit_runner.step.bad_step import find_bad_step
        from orbit_runner.step.examine import examination_obstacle, examine_step

        self.bad_step = find_bad_step(run, self._divergence)
        if self.bad_step is not None:
            self.obstacle = examination_obstacle(run)
            self.examination = None if self.obstacle else examine_step(run)
        raise StepExamined


def replay(plan: ReplayPlan, directory: Path, progress: Progress) -> Replay:
    """Repeats a run up to a step in a new directory, and examines that step.

    If the run ends before the step, raises the error that ended it, or `RunnerError`.
    """
    steps = plan.steps.prepared(directory)
    with progress.shown_scope():
        if plan.divergence is not None:
            return _find_step(steps, plan.divergence, directory, progress)
        return _replay_to_step(plan, steps, directory, progress)


def _replay_to_step(
    plan: ReplayPlan, steps: Repetition, directory: Path, progress: Progress
) -> Replay:
    callback = ExamineAtStep(plan.step, stops=not plan.continues)
    error = rerun(steps, directory, progress, [callback])
    if callback.examination is None:
        raise error or RunnerError(
            f"the run ended before step {plan.step}", path="--step", code="unknown-step"
        )
    own = judge_step(
        steps.history,
        read_history(directory),
        step=plan.step,
        after=steps.after,
        end=steps.stop if plan.continues else plan.step - 1,
        summary_interval=steps.config.config.trainer.summary_steps(steps.stop),
        error=error if plan.continues else None,
    )
    return Replay(plan.step, callback.examination, own)


def _find_step(
    steps: Repetition, divergence: Divergence, directory: Path, progress: Progress
) -> Replay:
    callback = ExamineBadStep(divergence)
    error = rerun(steps, directory, progress, [callback])
    if error is not None and not isinstance(error, StepExamined):
        raise error
    bad_step = callback.bad_step
    if bad_step is None:
        lines = [f"no step up to {steps.stop} diverges when it is trained again", *steps.reasons]
        raise RunnerError("\n".join(lines), code="not-repeatable", exit_code=exit_codes.DIFFERENT)
    step = max(1, bad_step.step)
    examples = _examples_of(steps, step, divergence.recoveries) if callback.obstacle else []
    return Replay(
        step,
        callback.examination,
        finding=str(bad_step),
        obstacle=callback.obstacle,
        examples=examples,
    )


def _examples_of(steps: Repetition, step: int, recoveries: int) -> list[int]:
    examples = TrainingOrder(steps.config.config, steps.run).examples(recoveries)
    if examples is None:
        return []
    rows = examples.order.rows(step - 1).examples.tolist()
    return [int(example) for example in rows if example >= 0]
