"""What surrounds a run: the lock of its directory, its other processes and its trackers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of
from orbit_runner.config.schema.modes import check_mode
from orbit_runner.config.serialize import flat_settings, to_yaml
from orbit_runner.distribute.failure_detection import failure_detection_scope
from orbit_runner.distribute.process_group import Workers
from orbit_runner.errors import ExportFailed, Interrupted, first_line
from orbit_runner.run_directory.run_lock import RunDirectoryRemoved, RunLock
from orbit_runner.trackers.base import RunInfo
from orbit_runner.train.request import RunRequest
from orbit_runner.train.run import Run
from orbit_runner.train.stop_requests import StoppedAtStep


@contextlib.contextmanager
def run_scope(request: RunRequest) -> Iterator[None]:
    """Locks the run directory if the mode trains, and monitors the other processes of the run.

    Workers that reach the end wait for each other. Raises RunnerError if the mode is unknown or
    another process trains in the directory, MemberLost if another worker fails, and
    RunDirectoryRemoved if the directory was removed.
    """
    check_mode(request.mode)
    workers = Workers(request.strategy)
    should_lock = request.trains and workers.is_chief
    lock = _lock_scope(request.model_dir) if should_lock else contextlib.nullcontext()
    with lock, failure_detection_scope(request.strategy, request.config.runtime):
        yield
        workers.acknowledge()  # The process may exit after this.


@contextlib.contextmanager
def _lock_scope(model_dir: Path) -> Iterator[None]:
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
def tracking_scope(run: Run) -> Iterator[None]:
    """Tracks a run that has restored or initialized its state."""
    tracking = run.records.tracking
    if not tracking:
        yield
        return
    tracking.start(_run_info(run), run.directory.trackers(run.request.mode))
    try:
        yield
    except BaseException as error:
        # The error must reach the caller, even if the devices are lost.
        with contextlib.suppress(Exception):
            tracking.finish(_status(error), _results(run, first_line(error)))
        raise
    tracking.finish("finished", _results(run, ""))


def _run_info(run: Run) -> RunInfo:
    # Arguments of trackers are for their services only, and may be secret.
    settings = flat_settings(run.written_config)
    lines = to_yaml(run.written_config).splitlines(keepends=True)
    return RunInfo(
        name=run.written_config.name or "run",
        mode=run.request.mode,
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


def _results(run: Run, reason: str) -> dict[str, str]:
    """Returns what trackers get at the end; `reason` is why the run did not finish, or ""."""
    step = run.step
    results = {"reason": reason} if reason else {}
    results["step"] = str(step)
    # Not computed from the model: reading its variables may require the other workers.
    with contextlib.suppress(OSError, ValueError):
        results["weights_sha256"] = checkpoints_of(run.model_dir).record(step).weights
    return results
