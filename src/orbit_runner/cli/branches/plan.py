"""Plans a branch: all checks before anything is written. Does not import TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from orbit_runner.checkpoint.latest_checkpoint import latest_intact_record
from orbit_runner.checkpoint.metadata import CheckpointRecord
from orbit_runner.cli.preflight import setting_error_scope
from orbit_runner.cli.reference_run import OriginalRun, difference_reasons
from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.serialize import Difference, differences
from orbit_runner.data.fingerprint import Fingerprint
from orbit_runner.errors import RunnerError, format_list
from orbit_runner.run_directory.branch import read_branch
from orbit_runner.run_directory.config import is_made_with
from orbit_runner.run_directory.data_record import DataChanged, DataRecord, fingerprint_of
from orbit_runner.run_directory.history import RunHistory, read_history
from orbit_runner.run_directory.run_summary import read_summary
from orbit_runner.storage.staging import localize

_OPTIMIZER = "trainer.optimizer_config.optimizer.type"
# Settings that matter only before the first step.
_INITIAL_SETTINGS = ("task.init_checkpoint", "task.init_checkpoint_modules", "task.init_ignore")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BranchPlan:
    """A branch that has not been made yet."""

    parent: Path  # run directory of the run to continue
    directory: Path  # new run directory
    step: int  # last step that both have in common
    before: ResolvedConfig  # config of the parent
    resolved: ResolvedConfig  # config of the branch
    history: RunHistory  # of the parent
    start: CheckpointRecord | None  # nearest checkpoint of the parent, at or before the step
    reference: CheckpointRecord  # that checkpoint, or the newest one if there is none
    fingerprint: Fingerprint  # of the data of the branch
    data: DataRecord  # these data, compared with those of the parent

    @property
    def repeats_steps(self) -> bool:
        """Whether the step has no checkpoint, so that steps of the parent are repeated."""
        return self.start is None or self.start.step < self.step

    @property
    def changes(self) -> list[Difference]:
        """The settings that the branch changes."""
        return differences(self.before.config, self.resolved.config)

    @property
    def original(self) -> OriginalRun:
        """The parent, as the run to repeat up to the step."""
        return OriginalRun(
            resolved=self.before,
            same_config=is_made_with(self.parent, self.reference.config, self.before.config),
            history=self.history,
            record=self.reference,
            start=None if self.start is None else self.start.step,
        )


def plan_branch(
    parent: Path,
    step: int,
    directory: Path,
    *,
    before: ResolvedConfig,
    resolved: ResolvedConfig,
    allow_partial: bool = False,
) -> BranchPlan:
    """Returns the plan of a branch.

    Raises `RunnerError` if the parent did not reach the step or has no intact checkpoint, and
    `ConfigError` if a changed setting cannot be changed at a step.
    """
    history = read_history(parent)
    _check_step(parent, step, reached_step(parent, history))
    start = latest_intact_record(history.checkpoints, at_most=step)
    reference = start or latest_intact_record(history.checkpoints)
    if reference is None:
        raise RunnerError(
            f"RUN: no intact checkpoint with a record in {history.checkpoints.path}\n"
            f"run `runner verify {parent}` to see what is wrong with each checkpoint"
        )
    with setting_error_scope(resolved):
        fingerprint = fingerprint_of(localize(resolved.config).task)
    plan = BranchPlan(
        parent=parent,
        directory=directory,
        step=step,
        before=before,
        resolved=resolved,
        history=history,
        start=start,
        reference=reference,
        fingerprint=fingerprint,
        data=DataRecord(parent, fingerprint),
    )
    problems = [*_find_problems(plan, allow_partial)]
    if problems:
        raise ConfigError(problems)
    _check_data(plan)
    return plan


def reached_step(run: Path, history: RunHistory) -> int:
    """Returns the last step that a run is known to have reached."""
    return max([read_summary(run).step, *history.fingerprints, *history.losses])


def _check_step(parent: Path, step: int, reached: int) -> None:
    if not 1 <= step <= reached:
        allowed = f"1 to {reached}, the last step of {parent} so far" if reached else "none yet"
        raise RunnerError(f"--at: got {step}, allowed: {allowed}")
    branch = read_branch(parent)
    if branch is not None and step < branch.step:
        raise RunnerError(
            f"--at: got {step}, but {parent} branches off from {branch.parent} at step "
            f"{branch.step}\nuse `runner branch {branch.parent} --at={step}`"
        )


def _find_problems(plan: BranchPlan, allow_partial: bool) -> Iterator[Problem]:
    """Yields the changes that are known to be impossible. Restoring the checkpoint finds others."""
    for change in plan.changes:
        if change.path == _OPTIMIZER and not allow_partial:
            message = (
                f"got {change.right}, but step {plan.step} has the slots of {change.left}\n"
                "keep the optimizer, or pass --allow_partial to start with new slots"
            )
            yield Problem(change.path, message, plan.resolved.origin(change.path))
    trainer = plan.resolved.config.trainer
    if 0 < trainer.train_steps < plan.step and not trainer.train_epochs:
        message = f"got {trainer.train_steps}, but the branch begins at step {plan.step}"
        path = "trainer.train_steps"
        yield Problem(path, message, plan.resolved.origin(path))


def _check_data(plan: BranchPlan) -> None:
    changes = plan.data.difference.changes
    if changes and not any(change.path.startswith("task.") for change in plan.changes):
        raise DataChanged(
            f"{plan.parent}: the data changed since the run last started:\n{format_list(changes)}\n"
            "restore these files, or change the settings of the data"
        )


def describe_branch(plan: BranchPlan) -> str:
    """Returns what the branch has in common with its parent, and what it changes."""
    common = f"steps 1 to {plan.step} are those of {plan.parent}"
    changes = plan.changes
    if not changes:
        return f"{common}; no setting is changed, so the weights stay those of that run"
    lines = [f"{one.path}: {one.left} → {one.right}" for one in changes]
    texts = [f"{common}; from step {plan.step + 1} on:\n{format_list(lines)}"]
    initial = [one.path for one in changes if one.path in _INITIAL_SETTINGS]
    if initial:
        texts.append(f"without effect, because training has begun: {', '.join(initial)}")
    if any(one.path == "runtime.seed" for one in changes):
        texts.append("the new seed determines the examples and random ops of later steps only")
    return "\n".join(texts)


def inexact_reasons(plan: BranchPlan) -> list[str]:
    """Returns reasons why the steps of the parent may not be repeated exactly."""
    inexact = list(plan.reference.inexact)
    return (
        list(dict.fromkeys([*difference_reasons(plan.original), *inexact]))
        if plan.repeats_steps
        else inexact
    )
