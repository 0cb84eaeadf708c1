"""Trains the trials of a sweep, together with other processes on the same directory.

There is no coordinator: each process reads what the others have written, computes which runs train
next, and claims some of them. If a process dies, its claims are free again.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from orbit_runner import exit_codes
from orbit_runner.config.errors import ConfigError
from orbit_runner.config.serialize import inline_yaml
from orbit_runner.errors import unknown_name_message
from orbit_runner.run_directory.run_lock import read_holder
from orbit_runner.sweep.definition import Sweep
from orbit_runner.sweep.directory import SweepDirectory
from orbit_runner.sweep.results import SweepResults
from orbit_runner.sweep.run_state import RunState, RunStates, file_version
from orbit_runner.sweep.schedule import Schedule, SweepProgress, TrialTask
from orbit_runner.sweep.sharing import Claim, Devices, divide_cores, release_all
from orbit_runner.sweep.trial_process import TrialCommand, TrialProcess
from orbit_runner.utils.files import write_atomically, write_if_changed
from orbit_runner.utils.log import note
from orbit_runner.utils.signals import SignalGuard


def _trial_arguments(
    sweep: Sweep, task: TrialTask, settings: Mapping[str, object], model_dir: Path
) -> tuple[str, ...]:
    """Returns the arguments of `runner` that train a trial for a task, or resume it."""
    file = sweep.file
    values = {**sweep.machine_settings, **settings}
    return (
        "run",
        f"--experiment={file.experiment}",
        *(f"--config_file={name}" for name in file.config_files),
        *([f"--params_override={inline_yaml(file.overrides)}"] if file.overrides else []),
        *(f"--{path}={inline_yaml(value)}" for path, value in values.items()),
        f"--seed={task.seed}",
        *([f"--stop_at_step={task.stop_at}"] if task.stop_at is not None else []),
        *(f"--import={name}" for name in file.imports),
        f"--model_dir={model_dir}",
        "--progress=plain",
    )


_POLL_SECONDS = 0.2
# A run is given up after its processes have ended this many times without progress.
_MAX_LOST = 10
_MAX_LINES = 6  # of the message of a trial that failed
# Exit codes of a run that was stopped or killed, which do not mean that it failed.
_STOPPED = (129, 130, exit_codes.MEMBER_LOST, 143)

Show = Callable[[SweepResults], None]


@dataclasses.dataclass
class _Job:
    """One of the trials that this process trains at the same time.

    Attributes:
        cores: The cores of its process, empty for all.
        environ: The environment variables that show its GPUs.
        claims: The locks of its GPUs.
        process: Its process, which may have no trial; None before the first one.
    """

    cores: tuple[int, ...]
    environ: Mapping[str, str] = dataclasses.field(default_factory=dict)
    claims: Sequence[Claim] = ()
    process: TrialProcess | None = None

    def train(self, command: TrialCommand) -> None:
        """Begins a trial, in a new process if necessary."""
        if self.process is None or not self.process.can_train(command):
            self.kill()
            self.process = TrialProcess(command)
        else:
            self.process.train(command)

    def kill(self) -> None:
        """Kills the process. It holds the memory of its GPUs until then."""
        if self.process is not None:
            self.process.kill()
        self.process = None

    def release(self) -> None:
        """Releases the GPUs."""
        self.kill()
        release_all(self.claims)
        self.claims = ()


@dataclasses.dataclass
class _Running:
    """A run that this process trains."""

    task: TrialTask
    job: _Job
    process: TrialProcess
    claim: Claim
    last_saved_step: int  # the last step that was saved when it began


class Worker:
    """Trains trials until the sweep is finished, or a signal arrives.

    Args:
        load: Returns the sweep as it was extended in its directory.
        directory: The directory of the sweep.
        jobs: The number of trials that this process trains at the same time.
        devices_per_job: The number of GPUs of each.
        signals: The signals that this process received.
        show: Called with the results so far, again and again.
    """

    def __init__(
        self,
        load: Callable[[], Sweep],
        directory: SweepDirectory,
        *,
        jobs: int,
        devices_per_job: int,
        signals: SignalGuard,
        show: Show,
    ) -> None:
        self._load = load
        self._directory = directory
        self._signals = signals
        self._show = show
        self._jobs = [_Job(cores) for cores in divide_cores(jobs)]
        self._running = list[_Running]()
        self._devices = Devices(devices_per_job, directory.claims, os.environ)
        self._version = file_version(directory.file)
        self._sweep = load()
        self._schedule = Schedule(self._sweep)
        self._states = RunStates()
        self._lost: dict[tuple[int, int], int] = {}

    def progress(self) -> SweepProgress:
        """Returns the next tasks and the results so far, from the files of the sweep."""
        version = file_version(self._directory.file)
        if version != self._version:  # Another process extended the sweep.
            self._version, self._sweep = version, self._load()
            self._schedule = Schedule(self._sweep)
        return self._schedule.progress(self._state)

    def run(self) -> SweepResults:
        """Trains until every trial has a result or a signal arrives. Returns the results."""
        try:
            while True:
                progress = self.progress()
                self._show(progress.results)
                if self._signals.received is not None:
                    self._stop()
                    return self.progress().results
                if progress.is_finished and not self._running:
                    self._write_results(progress.results)
                    return progress.results
                if not self._reap() and not self._start_next(progress):
                    self._release_devices()
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
        free = self._free_jobs()
        return bool(free) and any(
            self._start(task, progress, free[0])
            for task in progress.tasks
            if (task.number, task.seed) not in busy
        )

    def _free_jobs(self) -> list[_Job]:
        busy = [trial.job for trial in self._running]
        return [job for job in self._jobs if not any(job is other for other in busy)]

    def _release_devices(self) -> None:
        """Lets other processes use the GPUs for which there is no trial."""
        for job in self._free_jobs():
            if job.claims:
                job.release()

    def _start(self, task: TrialTask, progress: SweepProgress, job: _Job) -> bool:
        name = self._sweep.run_name(task.number, task.seed)
        run = self._run_directory(task.number, task.seed)
        claim = self._directory.claims.try_acquire(name)
        if claim is None:
            return False
        has_devices = bool(job.claims) or self._acquire_devices(job)
        # The process of a sweep that was killed may take a moment to end. And another process may
        # have trained the run after its state was read.
        is_done = task.is_done(self._state(task.number, task.seed))
        if not has_devices or is_done or _is_locked_locally(run):
            claim.release()
            return False
        settings = progress.settings[task.number]
        command = TrialCommand(
            arguments=_trial_arguments(self._sweep, task, settings, run),
            environ={**os.environ, **job.environ},
            cores=job.cores,
            log=self._directory.log(name),
            runtime={path: settings[path] for path in settings if path.startswith("runtime.")},
        )
        last_saved_step = max(self._state(task.number, task.seed).weights, default=-1)
        try:
            job.train(command)
        except BaseException:
            claim.release()
            raise
        assert job.process is not None
        self._running.append(_Running(task, job, job.process, claim, last_saved_step))
        return True

    def _acquire_devices(self, job: _Job) -> bool:
        devices = self._devices.try_acquire()
        if devices is None:
            return False
        job.environ, job.claims = devices
        return True

    def _reap(self) -> bool:
        """Records the trials that have ended. Returns whether there was one."""
        ended = [
            (trial, code) for trial in self._running if (code := trial.process.poll()) is not None
        ]
        for trial, code in ended:
            self._running.remove(trial)
            self._record_end(trial, code)
            trial.claim.release()
        if ended:
            self._write_results(self.progress().results)
        for trial, _ in ended:
            self._check_metric(trial.task)
        return bool(ended)

    def _check_metric(self, task: TrialTask) -> None:
        """Raises ConfigError if a trial was evaluated without the metric of the objective."""
        state = self._state(task.number, task.seed)
        metric = self._sweep.file.objective.metric
        known = sorted({name for values in state.metrics.values() for name in values})
        if state.failure or state.diverged or not task.is_done(state) or metric in known:
            return
        message = (
            f"{unknown_name_message('metric', metric, known)}\n"
            "correct the sweep file, and use another --model_dir"
        )
        origin = self._sweep.file.origin("objective.metric")
        raise ConfigError.of("objective.metric", message, origin, "unknown-name")

    def _record_end(self, trial: _Running, code: int) -> None:
        """Records a failure, or that a run was lost without progress."""
        key = (trial.task.number, trial.task.seed)
        state = self._state(*key)
        if trial.task.is_done(state):
            self._lost.pop(key, None)
            return
        lines = _last_lines(self._directory.log(self._sweep.run_name(*key)))
        # What earlier trials left in their process must not make this one fail.
        is_first = trial.process.trials == 1
        if is_first and code > 0 and code not in (*_STOPPED, exit_codes.DIVERGED):
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
        failure = self._directory.failure(name)
        lines = [*lines, str(self._directory.log(name))]
        if self._sweep.file.search.learns:
            lines.append("the search learns from it; to train it again, use another --model_dir")
        else:
            lines.append(f"to train it again, delete {failure} and run the same command")
        text = "".join(f"\n  {line}" for line in lines)
        note(f"trial {name} failed; the others continue:{text}")

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
        for job in self._jobs:
            job.release()
        release_all([trial.claim for trial in self._running])
        self._running.clear()


def _last_lines(log: Path) -> list[str]:
    """Returns the message at the end of a log, from its last line that begins with `runner: `."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    begins = [index for index, line in enumerate(lines) if line.startswith("runner: ")]
    message_lines = lines[begins[-1] :] if begins else lines[-_MAX_LINES:]
    return [line.removeprefix("runner: ") for line in message_lines[:_MAX_LINES] if line.strip()]


def _is_locked_locally(run: Path) -> bool:
    """Returns whether a process of this machine trains in a run directory.

    The claim covers processes of other machines.
    """
    holder = read_holder(run)
    return holder is not None and not holder.host
