"""Starts the trackers of a run, and reports to them how it ended."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of
from orbit_runner.config.serialize import flat_settings, to_yaml
from orbit_runner.errors import ExportFailed, Interrupted, first_line
from orbit_runner.trackers.base import RunInfo
from orbit_runner.train.run import Run
from orbit_runner.train.stop_requests import StoppedAtStep

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
