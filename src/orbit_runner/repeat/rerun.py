"""Takes the steps of a run again, in another run directory. Imports TensorFlow when it does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.schedule_length import follows_run
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.distribute.tf_environment import prepare_environment
from orbit_runner.errors import Diverged, RunnerError, format_list
from orbit_runner.jobs.preflight import setting_error_scope
from orbit_runner.jobs.train_job import ConfigWriter, Job, start_job
from orbit_runner.repeat.plan import Repetition
from orbit_runner.train.callbacks.base import Callback

if TYPE_CHECKING:
    from orbit_runner.jobs.train_job import Progress


def rerun(
    steps: Repetition, directory: Path, progress: Progress, callbacks: Sequence[Callback] = ()
) -> Exception | None:
    """Repeats the steps of a run in this process. Returns the error that ended it early, if any.

    Resumes from the checkpoint in `directory`, if there is one. Notes why the steps may differ.
    Raises `RunnerError` if the run cannot start or was interrupted.
    """
    if steps.reasons:
        progress.note(
            f"note: the steps may differ from those of {steps.run}:\n{format_list(steps.reasons)}"
        )
    progress.phase("importing tensorflow")
    resolved = steps.resolved
    prepare_environment(resolved.config.runtime)
    with setting_error_scope(resolved):
        return _take_steps(steps, resolved, directory, [progress, *callbacks])


def _take_steps(
    steps: Repetition, resolved: ResolvedConfig, directory: Path, callbacks: Sequence[Callback]
) -> Exception | None:
    mode = steps.history.mode
    job = Job(resolved=resolved, config=resolved.config, mode=mode, model_dir=directory)
    strategy, task, record = start_job(job, train_steps=steps.stop)
    from orbit_runner import train_lib
    from orbit_runner.train.stop_requests import StoppedAtStep

    config = without_side_effects(resolved.config)
    all_callbacks = [ConfigWriter(job), *callbacks]
    try:
        for end, stops_early in _find_ends(steps):
            trainer = config.trainer
            # A branch that has not trained yet may have `auto`, which means the end of its run.
            if not (stops_early and follows_run(config)):
                last = end + 1 if stops_early else end
                trainer = trainer.replace(train_steps=last, train_epochs=0.0)
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
        return error
    record.finish("left" if stops_early else "done", step=steps.stop)
    return None


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
