"""The plan of steps of a run that are taken again: for `reproduce`, `replay`, `branch`, `why`.

Does not import TensorFlow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from orbit_runner import exit_codes
from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of, latest_intact_record
from orbit_runner.checkpoint.record import CheckpointRecord
from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.schema.data import resolve_data_config, service_addresses
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.determinism.numerics_record import describe_changes, describe_numerics
from orbit_runner.errors import RunnerError
from orbit_runner.jobs.preflight import check_before_start, compare_data
from orbit_runner.run_directory.code_version import code_differences, read_code_version
from orbit_runner.run_directory.config import is_made_with, resolve_run
from orbit_runner.run_directory.data_record import (
    inexact_data,
)
from orbit_runner.run_directory.run_reader import RunReader, read_history
from orbit_runner.tasks.assets import copy_assets

Change = tuple[str, str, str]  # (flag, dotted path, text)

# Settings that may have to differ on another machine. `enable_xla` is one of them because the
# comparison of numerics suggests it if config.yaml no longer matches the run.
MACHINE_SETTINGS = (
    "runtime.intra_op_threads",
    "runtime.inter_op_threads",
    "runtime.dataset_num_private_threads",
    "runtime.enable_xla",
    "task.train_data.data_dir",
    "task.validation_data.data_dir",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Repetition:
    """Steps of a run that a single process takes again, in another run directory."""

    config: ResolvedConfig  # of the run, perhaps with other settings of the machine
    history: RunReader  # as it was at the start
    record: CheckpointRecord | None = None  # of the newest intact checkpoint
    reasons: Sequence[str] = ()  # why the steps may differ
    start: int | None = None  # step of the checkpoint to resume from; None for the beginning
    stop: int = 0  # the last step

    @property
    def run(self) -> Path:
        """The directory of the run."""
        return self.history.path

    @property
    def after(self) -> int:
        """The step after which steps are repeated; -1 for the beginning."""
        return -1 if self.start is None else self.start

    @property
    def beginning(self) -> str:
        """Where the steps begin, in words."""
        return "the beginning" if self.start is None else f"the checkpoint of step {self.start}"

    @property
    def resolved(self) -> ResolvedConfig:
        """The config, changed to fit a single process."""
        if self.record is not None:
            return convert_to_single_process(self.config, self.record.strategy)
        attempts = self.history.attempts
        replicas = attempts[-1].get("replicas") if attempts else None
        return convert_to_single_process(self.config, f"× {replicas}" if replicas else "")

    def between(self, start: int | None, stop: int) -> Repetition:
        """Returns the same with other steps: those after `start`, up to `stop`."""
        return dataclasses.replace(self, start=start, stop=stop)

    def intact_step(self, at_most: int) -> int | None:
        """Returns the step of the latest intact checkpoint up to a step; None if there is none."""
        record = latest_intact_record(self.history.checkpoints, at_most=at_most)
        return None if record is None else record.step

    def prepared(self, directory: Path) -> Repetition:
        """Copies the checkpoint to resume from, and compares the data, which may add reasons.

        Raises `RunnerError` if the run cannot be repeated in `directory`, and `DataChanged` if the
        data changed since then.
        """
        resolved = self.resolved
        trainer = resolved.config.trainer.replace(train_steps=self.stop, train_epochs=0.0)
        limited = dataclasses.replace(resolved, config=resolved.config.replace(trainer=trainer))
        check_before_start(limited, self.history.mode, directory, alone=True)
        data = compare_data(resolved, self.run)
        advice = "the run cannot be repeated until these files are restored"
        data.check(advice, exit_codes.DIFFERENT)
        if self.start is not None:
            copy_checkpoint(self.history.checkpoints, self.start, directory)
        return dataclasses.replace(self, reasons=[*self.reasons, *data.notes()])


def read_repetition(
    run: Path, imports: tuple[str, ...] = (), changes: tuple[Change, ...] = ()
) -> Repetition:
    """Returns a run to repeat, without the steps; raises `RunnerError` if it has no config.

    `changes` are settings of the machine.
    """
    resolved = resolve_run(run, imports)
    changed = resolve_run(run, imports, changes) if changes else resolved
    # Read first, so that the history of a run in progress includes this checkpoint.
    record = latest_intact_record(checkpoints_of(run))
    steps = Repetition(config=changed, history=read_history(run), record=record)
    return dataclasses.replace(steps, reasons=[*_difference_reasons(steps, resolved)])


def _difference_reasons(steps: Repetition, resolved: ResolvedConfig) -> Iterator[str]:
    """Yields why the steps may differ, but for the data; `resolved` is the config of the run."""
    runtime = steps.config.config.runtime
    record = steps.record
    if record is not None and not is_made_with(steps.run, record.config, resolved.config):
        yield "the newest checkpoint was made with a different config than config.yaml"
    if steps.history.is_overridden:
        yield "the run was resumed with --resume=override"
    if not runtime.deterministic:
        yield "runtime.deterministic is false: bitwise-identical results are not guaranteed"
    yield from inexact_data(steps.run)
    if record is not None:
        code = read_code_version(steps.run)
        yield from code_differences(steps.history.attempts, record.step, code)
        yield from describe_changes(record.numerics, describe_numerics(runtime))


def reached_step(history: RunReader) -> int:
    """Returns the last step that a run is known to have reached."""
    return max([history.step, *history.fingerprints, *history.losses])


def require_record(run: Path, record: CheckpointRecord | None) -> CheckpointRecord:
    """Returns the record of the newest intact checkpoint; raises `RunnerError` if it is None."""
    if record is None:
        raise RunnerError(
            f"no intact checkpoint in {checkpoints_of(run).path}\n"
            f"run `runner verify {run}` to see what is wrong with each checkpoint",
            path="RUN",
            code="no-checkpoint",
        )
    return record


def check_outside(directory: Path, run: Path) -> None:
    """Raises `RunnerError` if the directory of a new run is inside that of another one."""
    inside = directory.resolve()
    parent = run.resolve()
    if inside.is_relative_to(parent):
        place = "the directory of RUN itself" if inside == parent else f"inside RUN, {run}"
        raise RunnerError(
            f"{directory} is {place}\nuse another directory", path="--model_dir", code="bad-path"
        )


def copy_checkpoint(checkpoints: CheckpointFolder, step: int, directory: Path) -> None:
    """Copies a checkpoint and the assets of its run to another run directory.

    Raises `RunnerError` if the checkpoint was removed meanwhile.
    """
    copied = checkpoints_of(directory)
    copied.path.mkdir(parents=True, exist_ok=True)
    copy_assets(checkpoints.path.parent, directory)
    with contextlib.suppress(FileNotFoundError):
        for path in checkpoints.files(step):
            shutil.copyfile(path, copied.path / path.name)
    if copied.problem(step):
        raise RunnerError(
            f"RUN: the checkpoint of step {step} was removed while it was being copied, because "
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
    config = _without_other_processes(resolved.config)
    runtime = config.runtime
    if runtime.traits.is_asynchronous:
        raise RunnerError(
            "was trained with `parameter_server`, where the order of updates is not "
            "deterministic\nit cannot be reproduced; use `runner verify` to check its checkpoints",
            path="RUN",
            code="not-repeatable",
        )
    if runtime.traits.synchronous_workers:
        replicas = int(strategy.rpartition("×")[2] or 1)
        devices = {"distribution_strategy": "mirrored", "all_reduce_alg": None}
        runtime = runtime.replace(**devices, **{runtime.device_field: replicas})
    return dataclasses.replace(resolved, config=config.replace(runtime=runtime))


def _without_other_processes(config: ExperimentConfig) -> ExperimentConfig:
    single_config = config.without("cluster", "service")
    data = getattr(config.task, "train_data", None)
    if not config.uses_xla or not hasattr(data, "on_device"):
        return single_config
    if service_addresses(resolve_data_config(data, config.runtime)):
        # XLA compiles another program for steps that make their batches, as without services.
        train_data = single_config.task.train_data.replace(on_device=False)
        single_config = single_config.replace(
            task=single_config.task.replace(train_data=train_data)
        )
    return single_config
