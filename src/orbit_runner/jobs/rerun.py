"""Repeats a run in another run directory, up to a given step."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner import train_lib
from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.distribute.process_group import describe_strategy
from orbit_runner.errors import Diverged, RunnerError, first_line
from orbit_runner.jobs.gin_bindings import bind_gin
from orbit_runner.jobs.train_job import ConfigWriter, describe_run
from orbit_runner.reporting.run_record import RunRecord, describe_devices
from orbit_runner.run_directory.code_version import read_code_version
from orbit_runner.run_directory.history import RunHistory
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.train.callbacks.base import Callback
from orbit_runner.train.stop_requests import StoppedAtStep

if TYPE_CHECKING:
    import tensorflow as tf
    from official.core import base_task

    from orbit_runner.tasks.multitask import JointTask


@dataclasses.dataclass(frozen=True)
class RerunResult:
    """How a repeated run ended."""

    strategy: str  # with its number of replicas, as in checkpoint records
    error: Exception | None = None  # what ended the run early, if anything

    @property
    def has_diverged(self) -> bool:
        """Whether training diverged."""
        return isinstance(self.error, Diverged)

    @property
    def error_text(self) -> str:
        """The error in one line; "" if `error` is None."""
        if self.error is None:
            return ""
        kind = "" if self.has_diverged else f"{type(self.error).__name__}: "
        return f"{kind}{first_line(self.error)}"


def rerun(
    resolved: ResolvedConfig,
    history: RunHistory,
    directory: Path,
    progress: Callback,
    *,
    step: int,
    after: int,
    callbacks: Sequence[Callback] = (),
) -> RerunResult:
    """Repeats a run up to `step`. Returns how it ended.

    Resumes from the checkpoint in `directory`, if it has one: `after` is its step, or -1 for the
    beginning. `history` is that of the original run. `callbacks` are called last. Raises
    `RunnerError` if the run cannot start or was interrupted; returns other errors.
    """
    config = resolved.config
    mode = history.mode
    code = read_code_version(directory)
    bind_gin(resolved)
    strategy, task = train_lib.prepare(config, str(directory))
    replicas = strategy.num_replicas_in_sync
    done = RerunResult(describe_strategy(strategy))
    record = RunRecord(
        RunDirectory(directory).record(mode), ["runner", *sys.argv[1:]], mode, config.runtime.seed
    )
    record.update(
        **describe_run(resolved, directory, mode, code),
        devices=describe_devices(),
        replicas=replicas,
        train_steps=step,
    )
    all_callbacks = [progress, ConfigWriter(directory, resolved), *callbacks]
    try:
        for stage in _split_stages(config, history, step, after):
            stage.run(strategy, task, mode, directory, all_callbacks)
    except Exception as error:
        record.finish(f"{type(error).__name__}: {error}")
        if isinstance(error, RunnerError) and not isinstance(error, Diverged):
            raise
        return dataclasses.replace(done, error=error)
    record.finish("left" if stage.stops_early else "done", step=step)
    return done


def without_side_effects(config: ExperimentConfig) -> ExperimentConfig:
    """Returns a config without exports, traces, trackers and limits of time.

    They do not affect the weights, but a repeated run must not continue the tracked run of the
    original, and with a limit of time, it would stop at another step.
    """
    return config.without("output", "time")


@dataclasses.dataclass(frozen=True)
class _Stage:
    """A part of a run. It ends at `step`, or is stopped there if `stops_early`."""

    config: ExperimentConfig
    step: int
    stops_early: bool

    def run(
        self,
        strategy: tf.distribute.Strategy,
        task: base_task.Task | JointTask,
        mode: str,
        directory: Path,
        callbacks: list[Callback],
    ) -> None:
        steps = self.step + 1 if self.stops_early else self.step
        config = without_side_effects(self.config)
        trainer = config.trainer.replace(train_steps=steps, train_epochs=0.0)
        with contextlib.suppress(StoppedAtStep):
            train_lib.run_experiment(
                strategy,
                task,
                mode,
                config.replace(trainer=trainer),
                str(directory),
                enable_async_checkpointing=True,
                callbacks=callbacks,
                stop_at_step=self.step if self.stops_early else None,
                resume="override",  # Settings of the machine may differ.
            )


def _split_stages(
    config: ExperimentConfig, history: RunHistory, step: int, after: int
) -> Iterator[_Stage]:
    # A run that was finished and then extended has evaluated at its former last step.
    ends = {*history.ends, config.trainer.train_steps}
    for end in history.ends:
        if after < end < step:
            yield _Stage(config, end, stops_early=False)
    yield _Stage(config, step, stops_early=step not in ends)
