"""Opens the directory of a sweep: creates a new one, or extends an existing one."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from orbit_runner import exit_codes
from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.errors import RunnerError
from orbit_runner.sweep.definition import Sweep, new_sweep, seeds_of
from orbit_runner.sweep.directory import (
    SweepDirectory,
    check_file,
    extend_sweep,
    load_sweep,
    write_file,
)
from orbit_runner.sweep.run_state import RunState
from orbit_runner.sweep.schedule import Schedule, TrialTask
from orbit_runner.sweep.sweep_file import SweepFile
from orbit_runner.sweep.trial_process import TrialCommand, TrialProcess
from orbit_runner.sweep.worker import last_lines, trial_arguments
from orbit_runner.utils.signals import SignalGuard

_PROBE_SECONDS = 0.05
_MAX_ATTEMPTS = 10
_METRIC = "trainer.best_checkpoint_eval_metric"
_SUBDIRECTORY = "trainer.best_checkpoint_export_subdir"


def open_sweep(
    directory: SweepDirectory,
    file: SweepFile,
    base: ResolvedConfig,
    signals: SignalGuard,
) -> Callable[[], Sweep]:
    """Creates the directory, or checks that it belongs to this sweep and extends it.

    Returns a function that returns the sweep as any process has extended it. If a signal arrives,
    the directory may be incomplete. Raises RunnerError if the directory belongs to another sweep,
    or cannot be extended in this way.
    """
    check_file(directory, file, base)  # Before the lock creates the directory.
    sweep = new_sweep(file, base)

    def load() -> Sweep:
        return load_sweep(directory, sweep)

    claim = directory.acquire_settings_lock(signals)
    if claim is None:
        return load
    with claim:
        check_file(directory, file, base)
        if not directory.file.exists():
            _check_first_trial(sweep, directory, signals)
            if signals.received is None:
                write_file(directory, sweep, base)
        if signals.received is None:
            extend_sweep(directory, load(), file, seeds_of(file, base.config))
    return load


def _check_first_trial(sweep: Sweep, directory: SweepDirectory, signals: SignalGuard) -> None:
    """Builds the model, the data and the metrics of the first trial in a separate process.

    That process trains one step. Raises RunnerError if it fails, or if evaluations do not report
    the metric of the objective.
    """
    run = directory.path / "probe"
    log = directory.log("probe")
    settings = Schedule(sweep).progress(lambda number, seed: RunState()).settings[0]
    task = TrialTask(0, sweep.seeds[0], 1)
    arguments = trial_arguments(sweep, task, settings, run)
    # A run checks the metric of its best checkpoint when it is built. The weights are the same.
    arguments += (f"--{_METRIC}={sweep.file.objective.metric}", f"--{_SUBDIRECTORY}=best")
    command = TrialCommand(arguments=arguments, environ={**os.environ}, cores=(), log=log)
    for _ in range(_MAX_ATTEMPTS):
        shutil.rmtree(run, ignore_errors=True)
        log.unlink(missing_ok=True)
        try:
            code = _wait(TrialProcess(command), signals)
        finally:
            shutil.rmtree(run, ignore_errors=True)
        if code >= 0 or signals.received is not None:
            break  # Otherwise, it was killed, which says nothing about the trial.
    if signals.received is None and code not in (0, exit_codes.DIVERGED):
        raise RunnerError(_message(sweep, log), code="failed-trial")


def _wait(process: TrialProcess, signals: SignalGuard) -> int:
    """Waits for the end of a trial, and forwards a signal to it. Returns its exit code."""
    is_passed_on = False
    try:
        while (code := process.poll()) is None:
            if signals.should_kill:
                process.send_signal(signal.SIGKILL)
            elif signals.received is not None and not is_passed_on:
                process.send_signal(signals.forwarded_signal)
                is_passed_on = True
            time.sleep(_PROBE_SECONDS)
    finally:
        process.kill()
    return code


def _message(sweep: Sweep, log: Path) -> str:
    lines = last_lines(log, most=12)
    if any(_METRIC in line for line in lines):
        about = [line for line in lines if line.startswith("    ")]
        place = sweep.file.origin("objective.metric")
        return "\n".join([f"objective.metric — {place}", *(line[2:] for line in about)])
    return "\n".join(["the first trial cannot be built:", *(f"  {line}" for line in lines)])
