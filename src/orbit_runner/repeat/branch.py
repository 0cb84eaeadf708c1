"""Plans and creates a run that continues another one from one of its steps: `runner branch`.

A plan has passed all checks before anything is written. The directory of the branch is filled under
another, hidden name, and renamed when it is complete, so a killed process leaves no incomplete run.
Does not import TensorFlow unless steps must be repeated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner import exit_codes
from orbit_runner.checkpoint.directory import CheckpointFolder, steps_by_rank
from orbit_runner.checkpoint.latest_checkpoint import (
    BEST,
    latest_intact_record,
)
from orbit_runner.checkpoint.record import CheckpointRecord
from orbit_runner.compare.histories import compare_runs
from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.schema.experiment import EXCLUDE
from orbit_runner.config.serialize import Difference, differences
from orbit_runner.errors import RunnerError, format_list
from orbit_runner.jobs.preflight import compare_data, setting_error_scope
from orbit_runner.jobs.train_job import ConfigWriter, Job, start_record
from orbit_runner.repeat.plan import (
    Repetition,
    copy_checkpoint,
    reached_step,
    require_record,
)
from orbit_runner.repeat.rerun import rerun
from orbit_runner.run_directory.branch import Branch, write_branch
from orbit_runner.run_directory.code_version import read_code_version
from orbit_runner.run_directory.data_record import DataRecord
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.run_directory.run_lock import RunLock
from orbit_runner.run_directory.run_reader import RunReader, read_history
from orbit_runner.step.examples import TrainingOrder
from orbit_runner.utils.files import cut_records, read_json_object
from orbit_runner.utils.log import note

if TYPE_CHECKING:
    from orbit_runner.jobs.train_job import Progress

_OPTIMIZER = "trainer.optimizer_config.optimizer.type"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BranchPlan:
    """A branch that has not been created yet."""

    steps: Repetition  # of the parent, up to the last step that both have in common
    reference: CheckpointRecord  # of the checkpoint they start from, or the newest one without it
    directory: Path  # new run directory
    resolved: ResolvedConfig  # config of the branch
    changes: Sequence[Difference]  # the settings that it changes
    data: DataRecord  # its data, compared with those of the parent

    @property
    def repeats_steps(self) -> bool:
        """Whether the step has no checkpoint, so that steps of the parent are repeated."""
        return self.steps.after < self.steps.stop


def plan_branch(
    steps: Repetition, step: int, directory: Path, resolved: ResolvedConfig
) -> BranchPlan:
    """Returns the plan of a branch. `resolved` is its config.

    Raises `RunnerError` if the parent did not reach the step or has no intact checkpoint, and
    `ConfigError` if a changed setting cannot be changed at a step.
    """
    start = latest_intact_record(steps.history.checkpoints, at_most=step)
    _check_step(steps, step, start)
    data = compare_data(resolved, steps.run)
    reference = start or require_record(steps.run, steps.record)
    steps = dataclasses.replace(steps, record=reference)
    plan = BranchPlan(
        steps=steps.between(start.step if start else None, step),
        reference=reference,
        directory=directory,
        resolved=resolved,
        changes=differences(steps.config.config, resolved.config),
        data=data,
    )
    problems = [*_find_problems(plan)]
    if problems:
        raise ConfigError(problems)
    if not any(change.path.startswith("task.") for change in plan.changes):
        plan.data.check("restore these files, or change the settings of the data")
    return plan


def _check_step(steps: Repetition, step: int, start: CheckpointRecord | None) -> None:
    parent = steps.run
    reached = reached_step(steps.history)
    if not 1 <= step <= reached:
        allowed = f"1 to {reached}, the last step of {parent} so far" if reached else "none yet"
        raise RunnerError(f"got {step}, allowed: {allowed}", path="--at", code="unknown-step")
    branch = steps.history.branch
    if branch is not None and start is None:
        raise RunnerError(
            f"got {step}, but {parent} branches off from {branch.parent} at step {branch.step}, "
            f"and has no intact checkpoint up to step {step}\n"
            f"use a later step, or `runner branch {branch.parent}`",
            path="--at",
            code="unknown-step",
        )


def _find_problems(plan: BranchPlan) -> Iterator[Problem]:
    """Yields the changes that are known to be impossible. Restoring the checkpoint finds others."""
    for change in plan.changes:
        if change.path == _OPTIMIZER:
            message = (
                f"got {change.right}, but step {plan.steps.stop} has the slots of {change.left}\n"
                f"keep the optimizer, or start a new run with task.init_checkpoint={plan.steps.run}"
            )
            origin = plan.resolved.origin(change.path)
            yield Problem(change.path, message, origin, "checkpoint-mismatch")
    trainer = plan.resolved.config.trainer
    if 0 < trainer.train_steps < plan.steps.stop and not trainer.train_epochs:
        message = f"got {trainer.train_steps}, but the branch begins at step {plan.steps.stop}"
        path = "trainer.train_steps"
        yield Problem(path, message, plan.resolved.origin(path), "out-of-range")


def describe_branch(plan: BranchPlan) -> str:
    """Returns what the branch has in common with its parent, and what it changes."""
    common = f"steps 1 to {plan.steps.stop} are those of {plan.steps.run}"
    changes = plan.changes
    if not changes:
        return f"{common}; no setting is changed, so the weights stay those of that run"
    lines = [f"{change.path}: {change.left} → {change.right}" for change in changes]
    return f"{common}; from step {plan.steps.stop + 1} on:\n{format_list(lines)}"


def find_branch_step(steps: Repetition, resolved: ResolvedConfig) -> tuple[int, int | None]:
    """Returns the step at which a branch that excludes more examples than its parent can begin.

    That is the last checkpoint before the first step with one of these examples, which is the
    second result; None if none of them was trained on. Until that checkpoint, a run from scratch
    without these examples has the same weights. `steps` are of the parent. Raises `RunnerError` if
    the branch excludes no other examples, or if there is no such checkpoint.
    """
    with setting_error_scope(resolved):
        before = steps.config.config
        order = TrainingOrder(before, steps.run)
        old, new = (
            set(TrainingOrder(config, None).excluded_examples().tolist())
            for config in (before, resolved.config)
        )
        if old - new or not new - old:
            raise RunnerError(
                "is not set\nspecify the step; only a branch that adds examples to "
                f"{EXCLUDE} may omit it",
                path="--at",
                code="not-set",
            )
        until = reached_step(steps.history)
        uses = (order.occurrences(example, until) for example in new - old)
        first = min((of_example[0]["step"] for of_example in uses if of_example), default=None)
    at_most = until if first is None else first - 1
    step = steps.intact_step(at_most)
    if step is None:
        when = f"before step {first}, the first with an excluded example" if first else "yet"
        raise RunnerError(
            f"is not set, and {steps.run} has no intact checkpoint {when}\n"
            "start a new run with this setting, or specify the step",
            path="--at",
            code="no-checkpoint",
        )
    return step, first


def prepare_branch(plan: BranchPlan, mode: str, progress: Progress) -> Branch:
    """Creates the run directory of a branch, whose next start trains the step after the branch.

    Repeats the steps from the nearest checkpoint in this process. Raises `RunnerError` if they turn
    out to differ from those of the parent, or another process creates the same directory.
    """
    whole = plan.directory.absolute()
    staging = whole.with_name(f".{whole.name}.branch")  # hidden
    # A process that creates a branch locks its directory before it writes there.
    if staging.exists() and not (staging / ".lock").exists() and any(staging.iterdir()):
        message = f"the branch would be created in {staging}, which has other files\nmove them"
        raise RunnerError(message, path="--model_dir", code="already-exists")
    with RunLock(staging):
        if _clear_directory(staging):
            note(f"{plan.directory} was interrupted during its creation; creating it again")
        try:
            branch = _fill_directory(plan, mode, staging, progress)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
    try:
        if plan.directory.exists():
            plan.directory.rmdir()
        staging.rename(plan.directory)
    except OSError as error:
        raise RunnerError(
            f"cannot rename {staging} to {plan.directory}: {error.strerror}",
            path="--model_dir",
            code="not-writable",
        ) from error
    return branch


def _clear_directory(directory: Path) -> bool:
    """Removes what an earlier process left, except for the lock; returns whether there was any."""
    entries = [path for path in directory.iterdir() if path.name != ".lock"]
    for path in entries:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return bool(entries)


def _fill_directory(plan: BranchPlan, mode: str, directory: Path, progress: Progress) -> Branch:
    steps = plan.steps
    if steps.start is not None:
        _copy_history(steps.history, steps.start, directory)
    if plan.repeats_steps:
        _repeat_steps(steps, directory, progress)
    else:
        copy_checkpoint(steps.history.checkpoints, steps.stop, directory)
    checkpoints = CheckpointFolder(RunDirectory(directory).checkpoints, keep=None, run=directory)
    checkpoints.remove_others([steps.stop])
    record = checkpoints.record(steps.stop)
    return _write_records(plan, mode, directory, record)


def _copy_history(run: RunReader, step: int, directory: Path) -> None:
    """Copies the records of a run up to a step, and its best checkpoints."""
    source = run.directory
    branch = RunDirectory(directory)
    branch.checkpoints.mkdir()
    for source_file, branch_file in (
        (source.metrics, branch.metrics),
        (source.fingerprints, branch.fingerprints),
    ):
        if source_file.is_file():
            shutil.copyfile(source_file, branch_file)
            cut_records(branch_file, after=step, keeps_events=False)
    best = run.settings.get("trainer.best_checkpoint_export_subdir")
    if best and isinstance(best, str):
        _copy_best(run.path / best, directory / best, step)


def _copy_best(source: Path, directory: Path, until: int) -> None:
    """Copies the best checkpoints up to a step; later ones may have replaced some of them."""
    source_best = CheckpointFolder(source, name=BEST, keep=None)
    branch_best = CheckpointFolder(directory, name=BEST, keep=None)
    steps = [
        step
        for step in steps_by_rank(source_best)
        if step <= until and not source_best.problem(step)
    ]
    if not steps:
        return
    directory.mkdir(parents=True)
    for step in steps:
        for path in source_best.files(step):
            shutil.copyfile(path, directory / path.name)
    branch_best.remove_others(steps)
    with contextlib.suppress(OSError, ValueError):
        if read_json_object(source / "info.json").get("best_ckpt_global_step") in steps:
            shutil.copyfile(source / "info.json", directory / "info.json")


def _repeat_steps(steps: Repetition, directory: Path, progress: Progress) -> None:
    steps = steps.prepared(directory)
    with progress.shown_scope():
        progress.note(f"repeating {steps.run} from {steps.beginning} to step {steps.stop}")
        error = rerun(steps, directory, progress)
    if error is not None:
        raise error
    history = read_history(directory)
    parting = compare_runs(steps.history, history, step=steps.stop, after=steps.after)
    if parting.first is None:
        return
    known = f"\nknown reasons:\n{format_list(steps.reasons)}" if steps.reasons else ""
    saved = ", ".join(map(str, steps.history.checkpoints.committed_steps()))
    raise RunnerError(
        f"the steps of {steps.run} cannot be repeated here: the weights or the state differ "
        f"at step {parting.first}{known}\nuse --at with a step that has a checkpoint: {saved}",
        path="RUN",
        code="not-repeatable",
        exit_code=exit_codes.DIFFERENT,
    )


def _write_records(
    plan: BranchPlan, mode: str, directory: Path, record: CheckpointRecord
) -> Branch:
    """Writes the config and the records of the branch; `record` is that of its checkpoint."""
    earlier = plan.steps.history.branch
    config = plan.resolved.config
    configs = [record.config, plan.reference.config, *(earlier.configs if earlier else ())]
    branch = Branch(
        parent=plan.steps.run,
        step=plan.steps.stop,
        weights=record.weights,
        state=record.state,
        configs=tuple(dict.fromkeys(filter(None, configs))),
        changes=tuple(plan.changes),
    )
    job = Job(resolved=plan.resolved, config=config, mode=mode, model_dir=directory)
    ConfigWriter(job).on_run_begin(None)
    data = DataRecord(directory, plan.data.now).clear_comparison()
    data.earlier = [change for change in plan.data.earlier if change["step"] <= plan.steps.stop]
    data.write()
    write_branch(directory, branch)
    # The record of the repeated steps, if there were any, is not that of the branch.
    RunDirectory(directory).record(mode).unlink(missing_ok=True)
    train_steps = config.trainer.train_steps or None
    started = start_record(job, read_code_version(directory), train_steps=train_steps)
    started.finish(f"stopped: branched off at step {plan.steps.stop}", step=plan.steps.stop)
    return branch
