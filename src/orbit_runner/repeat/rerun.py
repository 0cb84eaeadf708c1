"""Takes the steps of a run again, in another run directory. Imports TensorFlow when it does."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.distribute.tf_environment import prepare_environment
from orbit_runner.errors import Diverged, RunnerError, first_line, format_list
from orbit_runner.jobs.preflight import setting_error_scope
from orbit_runner.jobs.train_job import ConfigWriter, Job, start_job
from orbit_runner.repeat.plan import Repetition
from orbit_runner.train.callbacks.base import Callback

if TYPE_CHECKING:
    from orbit_runner.jobs.train_job import Progress


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
    steps: Repetition, directory: Path, progress: Progress, callbacks: Sequence[Callback] = ()
) -> RerunResult:
    """Notes why the steps may differ, prepares this process, and takes them; see `take_steps`."""
    if steps.reasons:
        progress.note(
            f"note: the steps may differ from those of {steps.run}:\n{format_list(steps.reasons)}"
        )
    progress.phase("importing tensorflow")
    resolved = steps.resolved
    prepare_environment(resolved.config.runtime)
    with setting_error_scope(resolved):
        return take_steps(steps, directory, [progress, *callbacks])


def take_steps(
    steps: Repetition, directory: Path, callbacks: Sequence[Callback] = ()
) -> RerunResult:
    """Repeats the steps of a run. Returns how it ended.

    Resumes from the checkpoint in `directory`, if there is one. Raises `RunnerError` if the run
    cannot start or was interrupted; returns other errors.
    """
    resolved = steps.resolved
    mode = steps.history.mode
    job = Job(resolved=resolved, config=resolved.config, mode=mode, model_dir=directory)
    strategy, task, record = start_job(job, train_steps=steps.stop)
    from orbit_runner import train_lib
    from orbit_runner.distribute.process_group import describe_strategy
    from orbit_runner.train.stop_requests import StoppedAtStep

    done = RerunResult(describe_strategy(strategy))
    config = without_side_effects(resolved.config)
    all_callbacks = [ConfigWriter(job), *callbacks]
    try:
        for end, stops_early in _find_ends(steps):
            last = end + 1 if stops_early else end
            trainer = config.trainer.replace(train_steps=last, train_epochs=0.0)
            with contextlib.suppress(StoppedAtStep):
                train_lib.run_experiment(
                    strategy,
                    task,
                    mode,
                    config.replace(trainer=trainer),
                    str(directory),
                    enable_async_checkpointing=True,
                    callbacks=all_callbacks,
                    stop_at_step=end if stops_early else None,
                    resume="override",  # Settings of the machine may differ.
                )
    except Exception as error:
        record.finish(f"{type(error).__name__}: {error}")
        if isinstance(error, RunnerError) and not isinstance(error, Diverged):
            raise
        return dataclasses.replace(done, error=error)
    record.finish("left" if stops_early else "done", step=steps.stop)
    return done


def _find_ends(steps: Repetition) -> Iterator[tuple[int, bool]]:
    """Yields the last step of each part of a run, and whether the run is stopped there."""
    ends = steps.history.ends
    # A run that was finished and then extended has evaluated at its former last step.
    yield from ((end, False) for end in ends if steps.after < end < steps.stop)
    yield steps.stop, steps.stop not in {*ends, steps.config.config.trainer.train_steps}


def without_side_effects(config: ExperimentConfig) -> ExperimentConfig:
    """Returns a config without exports, traces and trackers.

    They do not affect the weights, but a repeated run must not continue the tracked run of the
    original.
    """
    return config.without("output")
