"""Trains the trials of a sweep, together with other processes on the same directory.

There is no coordinator: each process reads what the others have written, computes which runs train
next, and claims some of them. If a process dies, its claims are free again.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from orbit_runner import exit_codes
from orbit_runner.config.serialize import inline_yaml
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.run_lock import read_holder
from orbit_runner.sweep.definition import Sweep
from orbit_runner.sweep.directory import SweepDirectory
from orbit_runner.sweep.results import SweepResults
from orbit_runner.sweep.run_state import RunState, RunStates, file_version
from orbit_runner.sweep.schedule import Schedule, SweepProgress, TrialTask
from orbit_runner.sweep.sharing import Claim, Devices, Slot, make_slots, release_all
from orbit_runner.sweep.trial_process import TrialCommand, TrialLauncher, TrialProcess
from orbit_runner.utils.files import write_atomically, write_if_changed
from orbit_runner.utils.log import note
from orbit_runner.utils.signals import Signals


def trial_arguments(
    sweep: Sweep,
    task: TrialTask,
    settings: Mapping[str, object],
    model_dir: Path,
    imports: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """Returns the arguments of `runner` that train a trial for a task, or resume it."""
    file = sweep.file
    values = {**dict(sweep.machine_settings), **settings}
    # Only after `--more_steps`: otherwise, the config of a trial sets it.
    longer = task.train_steps if task.train_steps != sweep.train_steps[0] else 0
    return (
        "run",
        f"--experiment={file.experiment}",
        *(f"--config_file={name}" for name in file.config_files),
        *([f"--params_override={inline_yaml(file.overrides)}"] if file.overrides else []),
        *(f"--{path}={inline_yaml(value)}" for path, value in values.items()),
        f"--seed={task.seed}",
        *([f"--train_steps={longer}"] if longer else []),
        *([f"--stop_at_step={task.stop_at}"] if task.stop_at is not None else []),
        *(f"--import={name}" for name in imports),
        f"--model_dir={model_dir}",
        "--progress=plain",
    )


_PROBE_SECONDS = 0.05
_MAX_ATTEMPTS = 10
_METRIC = "trainer.best_checkpoint_eval_metric"
_SUBDIRECTORY = "trainer.best_checkpoint_export_subdir"


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
    run = directory.path / "probe"
    log = directory.log("probe")
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
        raise RunnerError(_message(sweep, log), code="failed-trial")


def _wait(process: TrialProcess, signals: Signals) -> int:
    """Waits for a process, and forwards a signal to it. Returns its exit code."""
    is_passed_on = False
    while (code := process.poll()) is None:
        if signals.should_kill:
            process.send_signal(signal.SIGKILL)
        elif signals.received is not None and not is_passed_on:
            process.send_signal(signals.forwarded_signal)
            is_passed_on = True
        time.sleep(_PROBE_SECONDS)
    return code


def last_lines(log: Path, most: int = 6) -> list[str]:
    """Returns the message at the end of a log, from its last line that begins with `runner: `."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    begins = [index for index, line in enumerate(lines) if line.startswith("runner: ")]
    message_lines = lines[begins[-1] :] if begins else lines[-most:]
    return [line.removeprefix("runner: ") for line in message_lines[:most] if line.strip()]


def _message(sweep: Sweep, log: Path) -> str:
    lines = last_lines(log, most=12)
    if any(_METRIC in line for line in lines):
        about = [line for line in lines if line.startswith("    ")]
        place = sweep.file.place("objective.metric")
        return "\n".join([f"objective.metric — {place}", *(line[2:] for line in about)])
    return "\n".join(["the first trial cannot be built:", *(f"  {line}" for line in lines)])


def _remove(run: Path) -> None:
    shutil.rmtree(run, ignore_errors=True)


_POLL_SECONDS = 0.2
# A run is given up after its processes have ended this many times without progress.
_MAX_LOST = 10
# Exit codes of a run that was stopped or killed, which do not mean that it failed.
_STOPPED = (129, 130, exit_codes.MEMBER_LOST, 143)

# Called with the results so far, and what each running trial of this process does.
Show = Callable[[SweepResults, Mapping[int, str]], None]


@dataclasses.dataclass
class _Running:
    """A run that this process trains."""

    task: TrialTask
    process: TrialProcess
    slot: Slot
    claims: Sequence[Claim]
    last_saved_step: int  # the last step that was saved when it began


class Worker:
    """Trains trials until the sweep is finished, or a signal arrives.

    Args:
        load: Returns the sweep, with the changes that are recorded in its directory.
        directory: The directory of the sweep.
        launcher: Starts the processes that train.
        jobs: The number of trials that this process trains at the same time.
        devices_per_job: The number of GPUs of each.
        imports: Modules that each trial imports first.
        signals: The signals that this process received.
        show: Called when results or running trials change.
    """

    def __init__(
        self,
        load: Callable[[], Sweep],
        directory: SweepDirectory,
        launcher: TrialLauncher,
        *,
        jobs: int,
        devices_per_job: int,
        imports: tuple[str, ...],
        signals: Signals,
        show: Show,
    ) -> None:
        self._load = load
        self._directory = directory
        self._launcher = launcher
        self._imports = imports
        self._signals = signals
        self._show = show
        self._free = make_slots(jobs)
        self._running = list[_Running]()
        self._devices = Devices(devices_per_job, directory.claims, os.environ)
        self._changes: tuple[int, ...] = ()
        self._sweep = load()
        self._schedule = Schedule(self._sweep)
        self._states = RunStates()
        self._lost: dict[tuple[int, int], int] = {}
        self._shown: object = None

    def progress(self) -> SweepProgress:
        """Returns the next tasks and the results so far, from the files of the sweep."""
        changes = file_version(self._directory.changes)
        if changes != self._changes:  # Another process changed the sweep.
            self._changes, self._sweep = changes, self._load()
            self._schedule = Schedule(self._sweep)
        return self._schedule.progress(self._state)

    def run(self) -> SweepResults:
        """Trains until every trial has a result or a signal arrives. Returns the results."""
        try:
            while True:
                progress = self.progress()
                self._show_changes(progress.results)
                if self._signals.received is not None:
                    self._stop()
                    return self.progress().results
                if progress.is_finished and not self._running:
                    self._write_results(progress.results)
                    return progress.results
                if not self._reap() and not self._start_next(progress):
                    time.sleep(_POLL_SECONDS)
        finally:
            self._kill()

    def _state(self, number: int, seed: int) -> RunState:
        directory = self._directory
        name = self._sweep.run_name(number, seed)
        return self._states.read(self._run_directory(number, seed), directory.failure(name))

    def _run_directory(self, number: int, seed: int) -> Path:
        return self._directory.path / self._sweep.run_directory(number, seed)

    def _start_next(self, progress: SweepProgress) -> bool:
        """Starts one run that no other process trains. Returns whether there was one."""
        busy = {(trial.task.number, trial.task.seed) for trial in self._running}
        for task in progress.tasks:
            if not self._free:
                return False
            if (task.number, task.seed) not in busy and self._start(task, progress):
                return True
        return False

    def _start(self, task: TrialTask, progress: SweepProgress) -> bool:
        name = self._sweep.run_name(task.number, task.seed)
        run = self._run_directory(task.number, task.seed)
        claim = self._directory.claims.try_acquire(name)
        if claim is None:
            return False
        devices = self._devices.try_acquire()
        # The process of a sweep that was killed may take a moment to end. And another process may
        # have trained the run after its state was read.
        is_done = task.is_done(self._state(task.number, task.seed))
        if devices is None or is_done or _is_locked_locally(run):
            release_all([claim, *(devices[1] if devices else [])])
            return False
        slot = self._free.pop(0)
        command = TrialCommand(
            arguments=trial_arguments(
                self._sweep, task, progress.settings[task.number], run, self._imports
            ),
            environ={**os.environ, **devices[0]},
            cores=slot.cores,
            log=self._directory.log(name),
        )
        last_saved_step = max(self._state(task.number, task.seed).weights, default=-1)
        try:
            process = self._launcher.start(command)
        except BaseException:
            self._free.append(slot)
            release_all([claim, *devices[1]])
            raise
        self._running.append(_Running(task, process, slot, [claim, *devices[1]], last_saved_step))
        return True

    def _reap(self) -> bool:
        """Records the processes that have ended. Returns whether there was one."""
        ended = [
            (trial, code) for trial in self._running if (code := trial.process.poll()) is not None
        ]
        for trial, code in ended:
            self._running.remove(trial)
            self._record_end(trial, code)
            self._free = sorted([*self._free, trial.slot], key=lambda slot: slot.number)
            release_all(trial.claims)
        if ended:
            self._write_results(self.progress().results)
        return bool(ended)

    def _record_end(self, trial: _Running, code: int) -> None:
        """Records a failure, or that a run was lost without progress."""
        key = (trial.task.number, trial.task.seed)
        state = self._state(*key)
        if trial.task.is_done(state):
            self._lost.pop(key, None)
            return
        lines = last_lines(self._directory.log(self._sweep.run_name(*key)))
        if code > 0 and code not in (*_STOPPED, exit_codes.DIVERGED):
            self._record_failure(key, lines or [f"exit code {code}"], code)
            return
        has_progress = max(state.weights, default=-1) > trial.last_saved_step
        self._lost[key] = 0 if has_progress else self._lost.get(key, 0) + 1
        if self._lost[key] >= _MAX_LOST:
            reason = f"ended {_MAX_LOST} times without progress, the last time with code {code}"
            self._record_failure(key, [reason, *lines], code)

    def _record_failure(self, key: tuple[int, int], lines: Sequence[str], code: int) -> None:
        name = self._sweep.run_name(*key)
        record = {"exit_code": code, "reason": "\n".join(lines)}
        write_atomically(self._directory.failure(name), json.dumps(record, indent=2) + "\n")
        lines = [*lines, str(self._directory.log(name))]
        lines.append(f"to train it again, run the same command with --force={key[0]}")
        text = "".join(f"\n  {line}" for line in lines)
        note(f"trial {name} failed; the others continue:{text}")

    def _show_changes(self, results: SweepResults) -> None:
        """Shows the results if they or the running trials have changed."""
        running = {trial.task.number: _describe(trial.task) for trial in self._running}
        now = (results, running)
        if now != self._shown:
            self._shown = now
            self._show(results, running)

    def _write_results(self, results: SweepResults) -> None:
        """Writes `sweep.json` unless it has the same content."""
        write_if_changed(self._directory.results, results.to_json())

    def _stop(self) -> None:
        """Asks the running trials to save and end, and waits for them."""
        for trial in self._running:
            trial.process.send_signal(self._signals.forwarded_signal)
        while self._running:
            if self._signals.should_kill:
                return  # `run` kills them.
            if not self._reap():
                time.sleep(_POLL_SECONDS)

    def _kill(self) -> None:
        for trial in self._running:
            trial.process.send_signal(signal.SIGKILL)
            release_all(trial.claims)
        self._running.clear()
        self._launcher.close()


def _is_locked_locally(run: Path) -> bool:
    """Returns whether a process of this machine trains in a run directory.

    The claim covers processes of other machines.
    """
    holder = read_holder(run)
    return holder is not None and not holder.host


def _describe(task: TrialTask) -> str:
    target = task.stop_at if task.stop_at is not None else task.train_steps
    seed = f"seed {task.seed}"
    return f"{seed}, to step {target}" if target else seed
