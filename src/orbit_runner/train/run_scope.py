"""What surrounds a run: the lock of its directory, its other processes and its trackers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.modes import TRAINING, check_mode
from orbit_runner.config.serialize import flat_settings, to_yaml
from orbit_runner.distribute.failure_detection import failure_detection_scope
from orbit_runner.distribute.process_group import Workers
from orbit_runner.errors import ExportFailed, Interrupted, first_line
from orbit_runner.run_directory.run_lock import RunDirectoryRemoved, RunLock
from orbit_runner.trackers.base import RunInfo
from orbit_runner.train.run import Run
from orbit_runner.train.stop_requests import StoppedAtStep


@contextlib.contextmanager
def run_scope(
    config: ExperimentConfig, strategy: tf.distribute.Strategy, mode: str, model_dir: str | Path
) -> Iterator[None]:
    """Locks the run directory if the mode trains, and monitors the other processes of the run.

    Workers that reach the end wait for each other. Raises RunnerError if the mode is unknown or
    another process trains in the directory, MemberLost if another worker fails, and
    RunDirectoryRemoved if the directory was removed.
    """
    check_mode(mode)
    workers = Workers(strategy)
    should_lock = mode in TRAINING and workers.is_chief
    lock = _lock_scope(model_dir) if should_lock else contextlib.nullcontext()
    with lock, failure_detection_scope(strategy, config.runtime):
        yield
        workers.acknowledge()  # The process may exit after this.


@contextlib.contextmanager
def _lock_scope(model_dir: str | Path) -> Iterator[None]:
    with RunLock(model_dir) as lock:
        try:
            yield
        except RunDirectoryRemoved:
            raise
        except Exception as error:
            # A file that could not be written is a consequence.
            if lock.is_removed():
                raise RunDirectoryRemoved(model_dir) from error
            raise
        # A save may have created the directory again, with nothing else in it.
        if lock.is_removed():
            raise RunDirectoryRemoved(model_dir)


_SECTION = "trackers"


@contextlib.contextmanager
def tracking_scope(run: Run, mode: str) -> Iterator[None]:
    """Tracks a run that has restored or initialized its state."""
    if not run.records.tracking:
        yield
        return
    run.records.tracking.start(_run_info(run, mode), run.directory.trackers(mode))
    try:
        yield
    except BaseException as error:
        # The error must reach the caller, even if the devices are lost.
        with contextlib.suppress(Exception):
            run.records.tracking.finish(_status(error), _results(run, reason=first_line(error)))
        raise
    if run.stopped_by_time:
        run.records.tracking.finish("interrupted", _results(run, reason=run.stopped_by_time))
    else:
        run.records.tracking.finish("finished", _results(run))


def _run_info(run: Run, mode: str) -> RunInfo:
    # Arguments of trackers are for their services only, and may be secret.
    settings = flat_settings(run.written_config)
    lines = to_yaml(run.written_config).splitlines(keepends=True)
    return RunInfo(
        name=run.written_config.name or "run",
        mode=mode,
        directory=run.model_dir,
        settings={name: value for name, value in settings.items() if name != _SECTION},
        config="".join(line for line in lines if not line.startswith(f"{_SECTION}:")),
        step=run.step if run.checkpoints.started_from else 0,
        previous_id=None,
    )


def _status(error: BaseException) -> str:
    if isinstance(error, ExportFailed):
        return "finished"
    stopped = (Interrupted, StoppedAtStep, KeyboardInterrupt)
    return "interrupted" if isinstance(error, stopped) else "failed"


def _results(run: Run, **results: str) -> dict[str, str]:
    step = run.step
    results["step"] = str(step)
    # Not computed from the model: reading its variables may require the other workers.
    with contextlib.suppress(OSError, ValueError):
        record = checkpoints_of(run.model_dir).record(step)
        if record is not None:
            results["weights_sha256"] = record.weights
    return results
