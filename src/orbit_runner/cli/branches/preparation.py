"""Creates the directory of a branch: the state of its parent at a step, and the history up to it.

The directory is filled under another, hidden name, and renamed when it is complete, so a killed
process leaves no incomplete run. Does not import TensorFlow unless steps must be repeated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orbit_runner import exit_codes
from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.latest_checkpoint import BEST, checkpoints_of, current_damage
from orbit_runner.checkpoint.metadata import CheckpointRecord
from orbit_runner.checkpoint.ranking import steps_by_rank
from orbit_runner.cli.branches.plan import BranchPlan, inexact_reasons
from orbit_runner.cli.finetune import run_child
from orbit_runner.cli.preflight import check_before_start, setting_error_scope
from orbit_runner.cli.reference_run import check_data, copy_checkpoint, limit_steps
from orbit_runner.cli.single_process import convert_to_single_process
from orbit_runner.cli.train_job import ConfigWriter, describe_run
from orbit_runner.errors import RunnerError, format_list
from orbit_runner.reporting.run_record import RunRecord
from orbit_runner.run_directory.branch import Branch, read_branch, write_branch
from orbit_runner.run_directory.code_version import read_code_version
from orbit_runner.run_directory.config_values import read_setting
from orbit_runner.run_directory.data_record import DataRecord
from orbit_runner.run_directory.history import read_history
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.run_directory.run_lock import RunLock
from orbit_runner.utils.files import cut_records, read_json_object
from orbit_runner.utils.garbage_collection import paused_collection_scope
from orbit_runner.utils.log import note

# Where earlier versions wrote what a run learned from its data.
_EARLIER_ASSETS = ("preprocessing.json", "vocabulary.model")


def prepare_branch(plan: BranchPlan, mode: str, progress: Any) -> Branch:
    """Creates the run directory of a branch, whose next start trains the step after the branch.

    Repeats the steps from the nearest checkpoint in this process. Raises `RunnerError` if they turn
    out to differ from those of the parent, or another process creates the same directory.
    """
    staging = staging_directory(plan.directory)
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
            f"--model_dir: cannot rename {staging} to {plan.directory}: {error.strerror}"
        ) from error
    return branch


def staging_directory(directory: Path) -> Path:
    """Returns the hidden directory in which a run directory is created."""
    whole = directory.absolute()
    return whole.with_name(f".{whole.name}.branch")


def _clear_directory(folder: Path) -> bool:
    """Removes what an earlier process left, except for the lock; returns whether there was any."""
    entries = [path for path in folder.iterdir() if path.name != ".lock"]
    for path in entries:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return bool(entries)


def _fill_directory(plan: BranchPlan, mode: str, folder: Path, progress: Any) -> Branch:
    after = _copy_start(plan, folder)
    if after < plan.step:
        _repeat_steps(plan, folder, after, progress)
        _check_repeated_steps(plan, folder, after)
    checkpoints = CheckpointFolder(RunDirectory(folder).checkpoints, keep=None, run=folder)
    checkpoints.remove_others([plan.step])
    record = checkpoints.record(plan.step)
    assert record is not None, "the checkpoint was copied or saved with a record"
    return _write_records(plan, mode, folder, record)


def _copy_start(plan: BranchPlan, folder: Path) -> int:
    """Copies the nearest checkpoint and the history up to it; returns its step, -1 for none."""
    if plan.start is not None:
        _copy_history(plan.parent, plan.start.step, folder)
        return plan.start.step
    earlier = read_branch(plan.parent)
    if earlier is None:
        return -1
    with branch_point_scope(plan.parent, earlier) as source:
        _copy_history(source, earlier.step, folder)
    return earlier.step


@contextlib.contextmanager
def branch_point_scope(run: Path, branch: Branch) -> Iterator[Path]:
    """Yields a run directory with the checkpoint of the step at which `run` branched off.

    That is the run itself as long as it keeps this checkpoint. Otherwise, a separate process
    repeats the steps of the parent in a temporary directory: two configs may need different
    devices and threads. Raises `RunnerError` if the parent is missing or its steps differ.
    """
    checkpoints = checkpoints_of(run)
    if (
        branch.step in checkpoints.committed_steps()
        and current_damage(checkpoints, branch.step) == ""
    ):
        yield run
        return
    with tempfile.TemporaryDirectory(prefix="branch-") as above:
        folder = Path(above) / "run"
        arguments = [
            str(branch.parent),
            f"--at={branch.step}",
            f"--model_dir={folder}",
            "--prepare",
        ]
        code, _ = run_child(["branch", *arguments])
        record = checkpoints_of(folder).record(branch.step) if code == 0 else None
        if record is None or record.state != branch.state:
            problem = (
                "has another state at that step now" if record else "cannot be repeated up to it"
            )
            error = RunnerError(
                f"RUN: {run} continues {branch.parent} from step {branch.step}. It has no intact "
                f"checkpoint of that step left, and {branch.parent} {problem}"
            )
            error.exit_code = code or exit_codes.DIFFERENT
            raise error
        yield folder


def _copy_history(source: Path, step: int, folder: Path) -> None:
    """Copies a checkpoint of a run, and the records of the steps up to it."""
    copy_checkpoint(checkpoints_of(source), step, folder, what="RUN")
    there, here = RunDirectory(source), RunDirectory(folder)
    for old, new in ((there.metrics, here.metrics), (there.fingerprints, here.fingerprints)):
        if old.is_file():
            shutil.copyfile(old, new)
            cut_records(new, after=step, keeps_events=False)
    if there.settings.is_dir():
        shutil.copytree(there.settings, here.settings)
    for name in _EARLIER_ASSETS:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    best = read_setting(source, "trainer.best_checkpoint_export_subdir")
    if best and isinstance(best, str):
        _copy_best(source / best, folder / best, step)


def _copy_best(source: Path, folder: Path, until: int) -> None:
    """Copies the best checkpoints up to a step; later ones may have replaced some of them."""
    there, here = (CheckpointFolder(path, name=BEST, keep=None) for path in (source, folder))
    steps = [step for step in steps_by_rank(there) if step <= until and not there.damage(step)]
    if not steps:
        return
    folder.mkdir(parents=True)
    for step in steps:
        for path in there.files(step):
            shutil.copyfile(path, folder / path.name)
    here.remove_others(steps)
    with contextlib.suppress(OSError, ValueError):
        if read_json_object(source / "info.json").get("best_ckpt_global_step") in steps:
            shutil.copyfile(source / "info.json", folder / "info.json")


def _repeat_steps(plan: BranchPlan, folder: Path, after: int, progress: Any) -> None:
    from orbit_runner.distribute.tf_environment import prepare_environment

    resolved = convert_to_single_process(plan.before, plan.reference.strategy)
    original = dataclasses.replace(plan.original, resolved=resolved)
    check_before_start(limit_steps(resolved, plan.step), plan.history.mode, folder)
    check_data(original)
    with progress.shown_scope():
        begin = "the beginning" if after < 0 else f"the checkpoint of step {after}"
        progress.note(f"repeating {plan.parent} from {begin} to step {plan.step}")
        progress.phase("importing tensorflow")
        prepare_environment(resolved.config.runtime)
        with setting_error_scope(resolved):
            with paused_collection_scope():
                from orbit_runner.cli.rerun import rerun
            done = rerun(resolved, plan.history, folder, progress, step=plan.step, after=after)
    if done.error is not None:
        raise done.error


def _check_repeated_steps(plan: BranchPlan, folder: Path, after: int) -> None:
    from orbit_runner.compare.histories import compare_runs

    found = compare_runs(plan.history, read_history(folder), step=plan.step, after=after)
    if found.first is None:
        return
    reasons = inexact_reasons(plan)
    known = f"\nknown reasons:\n{format_list(reasons)}" if reasons else ""
    saved = ", ".join(map(str, plan.history.checkpoints.committed_steps()))
    error = RunnerError(
        f"RUN: the steps of {plan.parent} cannot be repeated here: the weights or the state differ "
        f"at step {found.first}{known}\nuse --at with a step that has a checkpoint: {saved}"
    )
    error.exit_code = exit_codes.DIFFERENT
    raise error


def _write_records(plan: BranchPlan, mode: str, folder: Path, record: CheckpointRecord) -> Branch:
    """Writes the config and the records of the branch; `record` is that of its checkpoint."""
    earlier, config = read_branch(plan.parent), plan.resolved.config
    configs = [record.config, plan.reference.config, *(earlier.configs if earlier else ())]
    branch = Branch(
        parent=plan.parent,
        step=plan.step,
        weights=record.weights,
        state=record.state,
        configs=tuple(dict.fromkeys(filter(None, configs))),
        changes=tuple(plan.changes),
        attempts=plan.history.attempts,
    )
    ConfigWriter(folder, plan.resolved).on_run_begin(None)
    data = DataRecord(folder, plan.fingerprint).clear_comparison()
    data.earlier = [one for one in plan.data.earlier if one["step"] <= plan.step]
    data.on_run_begin(None)
    write_branch(folder, branch)
    path = RunDirectory(folder).record(mode)
    path.unlink(missing_ok=True)  # that of the repeated steps
    started = RunRecord(path, ["runner", *sys.argv[1:]], mode, config.runtime.seed)
    code = read_code_version(folder)
    started.update(
        **describe_run(plan.resolved, folder, mode, code),
        train_steps=config.trainer.train_steps or None,
    )
    started.finish(f"stopped: branched off at step {plan.step}", step=plan.step)
    return branch
