"""The run that `runner reproduce` makes again: what it left, read before anything runs."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from pathlib import Path

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of, latest_whole
from orbit_runner.checkpoint.metadata import CheckpointRecord
from orbit_runner.cli.single_process import in_one_process
from orbit_runner.config.resolve import Request, Resolved, resolve
from orbit_runner.determinism.numerics_record import changes, describe_numerics
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.config import is_made_with
from orbit_runner.run_directory.data_record import inexact_data
from orbit_runner.run_directory.history import RunHistory, read_history
from orbit_runner.run_directory.paths import RunDirectory

# The settings that another machine may need to be different. `enable_xla` is among them because
# the comparison of numerics proposes it, where config.yaml no longer says what the run did.
MACHINE_SETTINGS = (
    "runtime.intra_op_threads",
    "runtime.inter_op_threads",
    "runtime.dataset_num_private_threads",
    "runtime.gpu_thread_mode",
    "runtime.per_gpu_thread_count",
    "runtime.enable_xla",
    "runtime.xla_cache_dir",
    "task.train_data.data_dir",
    "task.validation_data.data_dir",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Original:
    """What is to be made again.

    Attributes:
        resolved: The config of the run, for a process by itself.
        same_config: Whether the config of the run is the one that made its newest checkpoint.
        history: Its trail, as it was at the start.
        record: That of the checkpoint to arrive at.
        start: The step of the checkpoint to go on from; None to start from the beginning.
    """

    resolved: Resolved
    same_config: bool
    history: RunHistory
    record: CheckpointRecord
    start: int | None

    @property
    def after(self) -> int:
        """The step from which on steps are made again; -1 for the beginning."""
        return -1 if self.start is None else self.start


def read_original(
    run: Path,
    last: int | None,
    *,
    imports: tuple[str, ...] = (),
    changes: tuple[tuple[str, str, str], ...] = (),
) -> Original:
    """Reads what a run left; imports no tensorflow.

    Args:
        run: Its folder.
        last: How many of its last steps are to be made again; None for all.
        imports: Modules to import first.
        changes: (flag, dotted path, text) of settings of the machine that are changed.

    Returns:
        What is to be made again.

    Raises:
        RunnerError: There is no config, or no checkpoint to arrive at or to go on from.
        ConfigError: The config does not load.
    """
    asked = Request(experiment=str(RunDirectory(run).require_config()), imports=imports)
    written = resolve(asked)
    changed = resolve(dataclasses.replace(asked, flags=changes)) if changes else written
    # The trail is read last: of a run that goes on, it then holds this checkpoint.
    record = latest_whole(checkpoints_of(run))
    if record is None:
        raise RunnerError(
            f"RUN: there is no whole checkpoint with a record in {run / 'checkpoints'}\n"
            f"`runner verify {run}` says what is wrong with those that there are"
        )
    history = read_history(run)
    start = None if last is None else _start(history.checkpoints, record.step, last)
    return Original(
        resolved=in_one_process(changed, record.strategy),
        same_config=is_made_with(run, record.config, written.config),
        history=history,
        record=record,
        start=start,
    )


def _start(folder: CheckpointFolder, newest: int, last: int) -> int:
    if last < 1:
        raise RunnerError(f"--last: got {last}, allowed: at least 1")
    found = latest_whole(folder, at_most=newest - last)
    if found is None:
        raise RunnerError(
            f"--last: got {last}, and no whole checkpoint is at or before step {newest - last}\n"
            f"there are those of steps {', '.join(map(str, folder.steps()))}\n"
            "give a smaller number, or leave --last out to start from the beginning"
        )
    return found.step


def notes(original: Original) -> list[str]:
    """Says what speaks against the same weights before anything has run.

    Args:
        original: What is to be made again.
    """
    config, record = original.resolved.config, original.record
    found = []
    if not original.same_config:
        found.append("config.yaml is not the config that made its newest checkpoint")
    if original.history.overridden:
        found.append("it once went on with --resume=override or --allow_partial")
    if not config.runtime.deterministic:
        found.append("runtime.deterministic is false: the same bits are not promised")
    found += inexact_data(original.history.folder)
    return found + changes(record.numerics, describe_numerics(config.runtime))


def copy_checkpoint(checkpoints: CheckpointFolder, step: int, folder: Path) -> None:
    """Copies a checkpoint into the folder of another run.

    Args:
        checkpoints: Where it is.
        step: Its step.
        folder: The folder of the other run.

    Raises:
        RunnerError: It was removed meanwhile.
    """
    copied = checkpoints_of(folder)
    copied.path.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        for path in checkpoints.files(step):
            shutil.copyfile(path, copied.path / path.name)
    if copied.record(step) is None or copied.damage(step):
        raise RunnerError(
            f"--last: the checkpoint of step {step} was removed while it was copied, by the run "
            "that goes on\nstart again"
        )
