"""A run that is repeated: its config for one process, its checkpoint, and what may differ.

Does not import TensorFlow before the run is repeated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner import exit_codes
from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of, latest_intact_record
from orbit_runner.checkpoint.record import CheckpointRecord
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.determinism.numerics_record import describe_changes, describe_numerics
from orbit_runner.distribute.tf_environment import prepare_environment
from orbit_runner.errors import RunnerError, format_list
from orbit_runner.jobs.preflight import setting_error_scope
from orbit_runner.run_directory.branch import read_branch
from orbit_runner.run_directory.code_version import code_differences, read_code_version
from orbit_runner.run_directory.config import is_made_with
from orbit_runner.run_directory.data_record import (
    DataChanged,
    DataRecord,
    fingerprint_of,
    inexact_data,
)
from orbit_runner.run_directory.history import RunHistory, read_history
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.storage.staging import localize
from orbit_runner.tasks.assets import copy_assets
from orbit_runner.train.callbacks.base import Callback
from orbit_runner.utils.garbage_collection import paused_collection_scope

if TYPE_CHECKING:
    from orbit_runner.jobs.rerun import RerunResult
    from orbit_runner.jobs.train_job import Progress

# Settings that may have to differ on another machine. `enable_xla` is one of them because the
# comparison of numerics suggests it if config.yaml no longer matches the run.
MACHINE_SETTINGS = (
    "runtime.intra_op_threads",
    "runtime.inter_op_threads",
    "runtime.dataset_num_private_threads",
    "runtime.enable_xla",
    "runtime.xla_cache_dir",
    "task.train_data.data_dir",
    "task.validation_data.data_dir",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OriginalRun:
    """The run to repeat."""

    resolved: ResolvedConfig  # config of the run, changed to fit a single process
    same_config: bool  # whether that config made the newest checkpoint
    history: RunHistory  # as it was at the start
    record: CheckpointRecord  # of the checkpoint to reach
    start: int | None  # step of the checkpoint to resume from; None for the beginning

    @property
    def after(self) -> int:
        """The step after which steps are repeated; -1 for the beginning."""
        return -1 if self.start is None else self.start


def read_original_run(
    run: Path,
    last: int | None,
    *,
    imports: tuple[str, ...] = (),
    changes: tuple[tuple[str, str, str], ...] = (),
) -> OriginalRun:
    """Returns the run to repeat; does not import TensorFlow.

    `last` is the number of last steps to repeat; None for all, or for those since a branch.
    `changes` are (flag, dotted path, text) of machine settings. Raises `RunnerError` if the run has
    no config, or no checkpoint to start from or to reach.
    """
    written, changed = resolve_saved_config(run, imports, changes)
    # Read last, so that the history of a run in progress includes this checkpoint.
    record = require_record(run)
    history = read_history(run)
    start = None
    branch = read_branch(run)
    if branch is not None:
        start = branch.step
        if record.step <= start:
            raise RunnerError(
                f"{run} has no intact checkpoint after step {start}, at which it branches off "
                f"from {branch.parent}\nreproduce that run instead",
                path="RUN",
                code="no-checkpoint",
            )
    if last is not None:
        start = _start_step(history.checkpoints, record.step, last)
    return OriginalRun(
        resolved=convert_to_single_process(changed, record.strategy),
        same_config=is_made_with(run, record.config, written.config),
        history=history,
        record=record,
        start=start,
    )


def resolve_saved_config(
    run: Path, imports: tuple[str, ...], changes: tuple[tuple[str, str, str], ...]
) -> tuple[ResolvedConfig, ResolvedConfig]:
    """Returns the config of a run, and the same with machine settings changed."""
    request = Request(experiment=str(RunDirectory(run).require_config()), imports=imports)
    written = resolve(request)
    return written, resolve(dataclasses.replace(request, flags=changes)) if changes else written


def require_record(run: Path) -> CheckpointRecord:
    """Returns the record of the newest intact checkpoint; raises `RunnerError` if there is none."""
    checkpoints = checkpoints_of(run)
    record = latest_intact_record(checkpoints)
    if record is None:
        raise RunnerError(
            f"no intact checkpoint with a record in {checkpoints.path}\n"
            f"run `runner verify {run}` to see what is wrong with each checkpoint",
            path="RUN",
            code="no-checkpoint",
        )
    return record


def _start_step(checkpoints: CheckpointFolder, newest: int, last: int) -> int:
    record = latest_intact_record(checkpoints, at_most=newest - last)
    if record is None:
        raise RunnerError(
            f"got {last}, but no intact checkpoint is at or before step {newest - last}\n"
            f"available steps: {', '.join(map(str, checkpoints.steps()))}\n"
            "use a smaller number, or omit --last to start from the beginning",
            path="--last",
            code="no-checkpoint",
        )
    return record.step


def check_outside(directory: Path, run: Path) -> None:
    """Raises `RunnerError` if the directory of a new run is inside that of another one."""
    inside = directory.resolve()
    parent = run.resolve()
    if inside.is_relative_to(parent):
        place = "the directory of RUN itself" if inside == parent else f"inside RUN, {run}"
        raise RunnerError(
            f"{directory} is {place}\nuse another directory", path="--model_dir", code="bad-path"
        )


def check_data(resolved: ResolvedConfig, run: Path) -> DataRecord:
    """Returns the data record of the run; raises `DataChanged` if the data changed since then."""
    with setting_error_scope(resolved):
        now = fingerprint_of(localize(resolved.config).task)
    data = DataRecord(run, now)
    if data.difference.changes:
        error = DataChanged(
            f"{run}: the data changed since the run last started:\n"
            f"{format_list(data.difference.changes)}\n"
            "the run cannot be reproduced until these files are restored"
        )
        error.exit_code = exit_codes.DIFFERENT
        raise error
    return data


def limit_steps(resolved: ResolvedConfig, step: int) -> ResolvedConfig:
    """Returns the config of a run that ends at a step."""
    trainer = resolved.config.trainer.replace(train_steps=step, train_epochs=0.0)
    return dataclasses.replace(resolved, config=resolved.config.replace(trainer=trainer))


def difference_reasons(
    history: RunHistory,
    runtime: RuntimeConfig,
    record: CheckpointRecord | None,
    *,
    same_config: bool = True,
) -> list[str]:
    """Returns reasons why a repeated run may differ, as far as they are known before it.

    `runtime` is that of the repeated run, `record` is that of a checkpoint of the run, if it has
    one, and `same_config` says whether config.yaml made that checkpoint.
    """
    reasons = []
    if not same_config:
        reasons.append("the newest checkpoint was made with a different config than config.yaml")
    if history.is_overridden:
        reasons.append("the run was resumed with --resume=override")
    if not runtime.deterministic:
        reasons.append(
            "runtime.deterministic is false: bitwise-identical results are not guaranteed"
        )
    reasons += inexact_data(history.folder)
    if record is None:
        return reasons
    reasons += code_differences(history.attempts, record.step, read_code_version(history.folder))
    return reasons + describe_changes(record.numerics, describe_numerics(runtime))


def repeat_run(
    resolved: ResolvedConfig,
    history: RunHistory,
    directory: Path,
    progress: Progress,
    *,
    step: int,
    after: int,
    callbacks: Sequence[Callback] = (),
) -> RerunResult:
    """Imports TensorFlow, and repeats a run up to a step; see `rerun`."""
    progress.phase("importing tensorflow")
    prepare_environment(resolved.config.runtime)
    with setting_error_scope(resolved):
        with paused_collection_scope():
            from orbit_runner.jobs.rerun import rerun
        return rerun(
            resolved, history, directory, progress, step=step, after=after, callbacks=callbacks
        )


def copy_checkpoint(
    checkpoints: CheckpointFolder, step: int, directory: Path, *, what: str = "--last"
) -> None:
    """Copies a checkpoint and the assets of its run to another run directory.

    Raises `RunnerError` if the checkpoint was removed meanwhile.

    `what` is the flag or argument that selects it.
    """
    copied = checkpoints_of(directory)
    copied.path.mkdir(parents=True, exist_ok=True)
    copy_assets(checkpoints.path.parent, directory)
    with contextlib.suppress(FileNotFoundError):
        for path in checkpoints.files(step):
            shutil.copyfile(path, copied.path / path.name)
    if copied.record(step) is None or copied.damage(step):
        raise RunnerError(
            f"{what}: the checkpoint of step {step} was removed while it was being copied, because "
            "the run is still training\nrun the command again",
            code="run-removed",
        )


def convert_to_single_process(resolved: ResolvedConfig, strategy: str) -> ResolvedConfig:
    """Returns the config with which a single process has the same result.

    Synchronous workers have the same result as the same number of replicas in one process. Other
    processes, such as data services, do not affect the weights. `strategy` includes the number of
    replicas, as in checkpoint records. Raises `RunnerError` for `parameter_server`, whose results
    cannot be reproduced.
    """
    runtime = resolved.config.runtime
    if runtime.traits.is_asynchronous:
        raise RunnerError(
            "was trained with `parameter_server`, where the order of updates is not "
            "deterministic\nit cannot be reproduced; use `runner verify` to check its checkpoints",
            path="RUN",
            code="not-repeatable",
        )
    changes: dict[str, object] = {
        "tf_data_service": None,
        "worker_hosts": None,
        "task_index": -1,
    }
    if runtime.traits.synchronous_workers:
        replicas = int(strategy.rpartition("×")[2] or 1)
        changes |= {"distribution_strategy": "mirrored", "all_reduce_alg": None, "num_workers": 0}
        changes[runtime.device_field] = replicas
    config = resolved.config.replace(runtime=runtime.replace(**changes))
    return dataclasses.replace(resolved, config=config)
