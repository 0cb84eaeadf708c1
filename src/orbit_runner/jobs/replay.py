"""Repeats a run up to a step, examines that step, and compares it with the run: `runner replay`.

The step is given, or it is the one at which the run diverged.

Does not import TensorFlow before the run is repeated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner import exit_codes
from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of, latest_intact_record
from orbit_runner.checkpoint.record import CheckpointRecord
from orbit_runner.compare.histories import StepVerdict, judge_step
from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.distribute.tf_environment import prepare_environment
from orbit_runner.errors import RunnerError, format_list
from orbit_runner.jobs.preflight import check_before_start, setting_error_scope
from orbit_runner.jobs.reference_run import (
    convert_to_single_process,
    copy_checkpoint,
    difference_reasons,
    limit_steps,
    resolve_saved_config,
)
from orbit_runner.run_directory.config import is_made_with
from orbit_runner.run_directory.history import RunHistory, read_history
from orbit_runner.run_directory.metric_records import Divergence, read_divergence
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.step.results import Examination
from orbit_runner.train.callbacks.base import Callback
from orbit_runner.utils.garbage_collection import paused_collection_scope

if TYPE_CHECKING:
    from orbit_runner.jobs.rerun import RerunResult
    from orbit_runner.jobs.train_job import Progress
    from orbit_runner.train.run import Run

# A replay continues by at most this number of steps, unless more are requested.
_MOST_STEPS = 300


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplayPlan:
    """How a step is replayed."""

    resolved: ResolvedConfig  # config of the run, changed to fit a single process
    history: RunHistory
    step: int  # the step to examine, or that at which it was detected that the run diverged
    start: int | None  # step of the checkpoint to start from; None for the beginning
    last: int  # the last step of the replay, or `step` if it ends before that step is taken
    continues: bool  # whether the replay takes the step as the run did, and all up to `last`
    notes: list[str]  # why the step may differ from that of the run
    divergence: Divergence | None = None  # how the run diverged, if that step is to be found

    @property
    def after(self) -> int:
        """The step after which steps are repeated; -1 for the beginning."""
        return -1 if self.start is None else self.start


def plan_replay(
    run: Path,
    step: int,
    *,
    verify: bool | None = None,
    imports: tuple[str, ...] = (),
    changes: tuple[tuple[str, str, str], ...] = (),
) -> ReplayPlan:
    """Returns how a step of a run is replayed.

    `verify` decides whether the replay continues to the next checkpoint or record of the run; None:
    if that is near. `changes` are (flag, dotted path, text) of machine settings. Raises
    `RunnerError` if the run has no config, or if a single process cannot repeat it.
    """
    written, changed = resolve_saved_config(run, imports, changes)
    train_steps = written.config.trainer.train_steps
    if train_steps and step > train_steps:
        raise RunnerError(
            f"got {step}, allowed: 1 to {train_steps}, the last step of the run "
            "(trainer.train_steps)",
            path="--step",
            code="unknown-step",
        )
    _require_observable(written)
    checkpoints = checkpoints_of(run)
    history = read_history(run)
    start = latest_intact_record(checkpoints, at_most=step - 1)
    newest = latest_intact_record(checkpoints)
    strategy = newest.strategy if newest is not None else _recorded_strategy(history)
    last = _next_recorded_step(history, step, verify, train_steps, written)
    return ReplayPlan(
        resolved=_allow_losses_before(convert_to_single_process(changed, strategy), step),
        history=history,
        step=step,
        start=None if start is None else start.step,
        last=last or step,
        continues=last is not None,
        notes=_find_notes(history, written, changed, newest),
    )


def plan_search(
    run: Path, imports: tuple[str, ...] = (), changes: tuple[tuple[str, str, str], ...] = ()
) -> ReplayPlan:
    """Returns how the step at which a run diverged is found, from the checkpoint before it.

    Raises `RunnerError` if the run did not diverge, or if a single process cannot repeat it.
    """
    written, changed = resolve_saved_config(run, imports, changes)
    _require_observable(written)
    divergence = read_divergence(RunDirectory(run).metrics)
    if divergence is None:
        raise RunnerError(
            f"{run} did not diverge, as far as its records say\n"
            "to examine a step, use --step=N instead of --find",
            path="--find",
            code="unknown-step",
        )
    history = read_history(run)
    before = divergence.first_above or divergence.step
    start = latest_intact_record(checkpoints_of(run), at_most=before - 1)
    newest = latest_intact_record(checkpoints_of(run))
    strategy = newest.strategy if newest is not None else _recorded_strategy(history)
    return ReplayPlan(
        resolved=convert_to_single_process(changed, strategy),
        history=history,
        step=divergence.step,
        start=None if start is None else start.step,
        last=divergence.step,
        continues=False,
        notes=_find_notes(history, written, changed, newest),
        divergence=divergence,
    )


def _find_notes(
    history: RunHistory,
    written: ResolvedConfig,
    changed: ResolvedConfig,
    newest: CheckpointRecord | None,
) -> list[str]:
    same = newest is None or is_made_with(history.folder, newest.config, written.config)
    return difference_reasons(history, changed.config.runtime, newest, same_config=same)


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


def _require_observable(resolved: ResolvedConfig) -> None:
    runtime = resolved.config.runtime
    if runtime.traits.uses_tpu:
        raise RunnerError(
            "was trained on TPUs, whose ops cannot be observed one by one\n"
            "use `runner batch` to see the examples of the step",
            path="RUN",
            code="not-repeatable",
        )


def _recorded_strategy(history: RunHistory) -> str:
    """Returns the strategy of a run without checkpoints, as in their records."""
    replicas = history.attempts[-1].get("replicas") if history.attempts else None
    return f"× {replicas}" if replicas else ""


def _next_recorded_step(
    history: RunHistory, step: int, verify: bool | None, train_steps: int, resolved: ResolvedConfig
) -> int | None:
    """Returns the step up to which the replay can be compared; None if it need not continue."""
    if verify is False:
        return None
    saved = min((number for number in history.fingerprints if number >= step), default=None)
    logged = min((number for number in history.losses if number >= step), default=None)
    for recorded in (saved, logged):
        if recorded is not None and (verify or recorded - step <= _MOST_STEPS):
            return recorded
    stopped = history.attempts and history.attempts[-1].get("outcome") not in ("", None, "done")
    if saved is not None or logged is not None or not stopped:
        return None
    # The run failed; the replay should fail in the same way by the end of the record.
    interval = resolved.config.trainer.summary_interval
    end = -(-step // interval) * interval
    end = min(end, train_steps) if train_steps else end
    return end if verify or end - step <= _MOST_STEPS else None


@dataclasses.dataclass(frozen=True)
class Replay:
    """A replayed step.

    Attributes:
        step: The step.
        examination: What was found in it; None if the steps of this run cannot be examined.
        own: Whether it is the step that the run took; None if it was found by a search.
        finding: What is wrong with a step that was found; "" if it was given.
        obstacle: Why it cannot be examined; "" if it can.
        examples: The examples of a step that cannot be examined; [] if they are not known.
    """

    step: int
    examination: Examination | None
    own: StepVerdict | None = None
    finding: str = ""
    obstacle: str = ""
    examples: Sequence[int] = ()


def replay(plan: ReplayPlan, directory: Path, progress: Progress) -> Replay:
    """Repeats a run up to a step in a new directory, and examines that step.

    If the run ends before the step, raises the error that ended it, or `RunnerError`.
    """
    check_before_start(
        limit_steps(plan.resolved, plan.last), plan.history.mode, directory, alone=True
    )
    if plan.start is not None:
        copy_checkpoint(plan.history.checkpoints, plan.start, directory, what="RUN")
    with progress.shown_scope():
        if plan.notes:
            progress.note(
                f"note: the step may differ from that of the run:\n{format_list(plan.notes)}"
            )
        progress.phase("importing tensorflow")
        prepare_environment(plan.resolved.config.runtime)
        with setting_error_scope(plan.resolved):
            if plan.divergence is not None:
                return _find_step(plan, plan.divergence, directory, progress)
            return _replay_to_step(plan, directory, progress)


def _replay_to_step(plan: ReplayPlan, directory: Path, progress: Callback) -> Replay:
    with paused_collection_scope():
        from orbit_runner.step.examine import (
            ExamineAtStep,
            StepExamined,
            check_examinable,
            examine_step,
        )

    examination: Examination | None = None

    def examine(run: Run) -> None:
        nonlocal examination
        examination = examine_step(run)

    callback = ExamineAtStep(plan.step, examine, stops=not plan.continues, check=check_examinable)
    result = _rerun(plan, directory, progress, callback)
    error = None if isinstance(result.error, StepExamined) else result.error
    if examination is None:
        raise error or RunnerError(
            f"the run ended before step {plan.step}", path="--step", code="unknown-step"
        )
    own = judge_step(
        plan.history,
        read_history(directory),
        step=plan.step,
        after=plan.after,
        end=plan.last if plan.continues else plan.step - 1,
        summary_interval=plan.resolved.config.trainer.summary_interval,
        error=error,
    )
    return Replay(plan.step, examination, own)


def _rerun(
    plan: ReplayPlan, directory: Path, progress: Callback, callback: Callback
) -> RerunResult:
    from orbit_runner.jobs.rerun import rerun

    return rerun(
        plan.resolved,
        plan.history,
        directory,
        progress,
        step=plan.last,
        after=plan.after,
        callbacks=[callback],
    )


def _find_step(
    plan: ReplayPlan, divergence: Divergence, directory: Path, progress: Callback
) -> Replay:
    with paused_collection_scope():
        from orbit_runner.step.bad_step import ExamineBadStep
        from orbit_runner.step.examine import StepExamined, examination_obstacle, examine_step

    examination: Examination | None = None
    obstacle = ""

    def examine(run: Run) -> None:
        nonlocal examination, obstacle
        obstacle = examination_obstacle(run)
        if not obstacle:
            examination = examine_step(run)

    search = ExamineBadStep(divergence, examine)
    error = _rerun(plan, directory, progress, search).error
    if error is not None and not isinstance(error, StepExamined):
        raise error
    if search.found is None:
        lines = [f"no step up to {plan.last} diverges when it is trained again", *plan.notes]
        different = RunnerError("\n".join(lines), code="not-repeatable")
        different.exit_code = exit_codes.DIFFERENT
        raise different
    step = max(1, search.found.step)
    examples = _examples_of(plan, step, divergence.recoveries) if obstacle else []
    return Replay(
        step, examination, finding=str(search.found), obstacle=obstacle, examples=examples
    )


def _examples_of(plan: ReplayPlan, step: int, recoveries: int) -> list[int]:
    from orbit_runner.step.examples import TrainingOrder

    examples = TrainingOrder(plan.resolved.config, plan.history.folder).examples(recoveries)
    if examples is None:
        return []
    rows = examples.order.rows(step - 1).examples.tolist()
    return [int(example) for example in rows if example >= 0]
