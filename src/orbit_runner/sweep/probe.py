"""Trains one step of the first trial, to find mistakes before a new sweep begins."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

from orbit_runner import exit_codes
from orbit_runner.errors import RunnerError
from orbit_runner.sweep.definition import Sweep
from orbit_runner.sweep.directory import SweepDirectory
from orbit_runner.sweep.schedule import SweepProgress, TrialTask
from orbit_runner.sweep.trial_command import trial_arguments
from orbit_runner.sweep.trial_process import TrialCommand, TrialLauncher, TrialProcess
from orbit_runner.utils.signals import Signals

_POLL_SECONDS = 0.05
_MAX_ATTEMPTS = 10
_METRIC, _SUBDIRECTORY = (
    "trainer.best_checkpoint_eval_metric",
    "trainer.best_checkpoint_export_subdir",
)


def check_first_trial(
    sweep: Sweep,
    directory: SweepDirectory,
    progress: SweepProgress,
    launcher: TrialLauncher,
    imports: tuple[str, ...],
    signals: Signals,
    cores: tuple[int, ...],
) -> None:
    """Builds the model, the data and the metrics of the first trial in a separate process.

    That process trains one step. Raises RunnerError if it fails, or if evaluations do not report
    the metric of the objective.
    """
    run, log = directory.path / "probe", directory.log("probe")
    task = TrialTask(0, sweep.seeds[0], sweep.train_steps[0], 1)
    arguments = trial_arguments(sweep, task, progress.settings[0], run, imports)
    # A run checks the metric of its best checkpoint when it is built. The weights are the same.
    arguments += (f"--{_METRIC}={sweep.file.metric}", f"--{_SUBDIRECTORY}=best")
    command = TrialCommand(arguments=arguments, environ={**os.environ}, cores=cores, log=log)
    for _ in range(_MAX_ATTEMPTS):
        _remove(run)
        log.unlink(missing_ok=True)
        try:
            code = _wait(launcher.start(command), signals)
        finally:
            _remove(run)
        if code >= 0 or signals.received is not None:
            break  # Otherwise, it was killed, which says nothing about the trial.
    if signals.received is None and code not in (0, exit_codes.DIVERGED):
        raise RunnerError(_message(sweep, log))


def _wait(process: TrialProcess, signals: Signals) -> int:
    """Waits for a process, and forwards a signal to it. Returns its exit code."""
    is_passed_on = False
    while (code := process.poll()) is None:
        if signals.should_kill:
            process.send_signal(signal.SIGKILL)
        elif signals.received is not None and not is_passed_on:
            process.send_signal(signals.forwarded_signal)
            is_passed_on = True
        time.sleep(_POLL_SECONDS)
    return code


def last_lines(log: Path, most: int = 6) -> list[str]:
    """Returns the message at the end of a log, from its last line that begins with `runner: `."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    begins = [index for index, line in enumerate(lines) if line.startswith("runner: ")]
    found = lines[begins[-1] :] if begins else lines[-most:]
    return [line.removeprefix("runner: ") for line in found[:most] if line.strip()]


def _message(sweep: Sweep, log: Path) -> str:
    lines = last_lines(log, most=12)
    if any(_METRIC in line for line in lines):
        about = [line for line in lines if line.startswith("    ")]
        place = sweep.file.place("objective.metric")
        return "\n".join([f"objective.metric — {place}", *(line[2:] for line in about)])
    return "\n".join(["the first trial cannot be built:", *(f"  {one}" for one in lines)])


def _remove(run: Path) -> None:
    shutil.rmtree(run, ignore_errors=True)
