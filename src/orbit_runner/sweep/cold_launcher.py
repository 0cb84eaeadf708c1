"""Starts each trial as a new process, which imports TensorFlow by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

from orbit_runner.errors import RunnerError
from orbit_runner.launch.process import dies_with
from orbit_runner.sweep.trial_process import TrialCommand, TrialProcess


class ColdLauncher:
    """A `TrialLauncher` without anything that runs between trials.

    `start` must be called in a thread that lives as long as the trials: on Linux, a trial is killed
    when the thread that started it ends.
    """

    def start(self, command: TrialCommand) -> TrialProcess:
        """Starts a process; raises `RunnerError` if its log cannot be written."""
        try:
            command.log.parent.mkdir(parents=True, exist_ok=True)
            with command.log.open("ab") as log:
                child = subprocess.Popen(
                    [sys.executable, "-m", "orbit_runner", *command.arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=dict(command.environ),
                    start_new_session=True,
                    preexec_fn=_beginning(command.cores),
                )
        except OSError as error:
            raise RunnerError(f"cannot start a trial: {error}") from error
        return _ColdTrial(child)

    def close(self) -> None:
        """Does nothing."""


class _ColdTrial:
    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child

    @property
    def pid(self) -> int:
        return self._child.pid

    def poll(self) -> int | None:
        return self._child.poll()

    def send_signal(self, number: int) -> None:
        self._child.send_signal(signal.Signals(number))


def _beginning(cores: tuple[int, ...]) -> Callable[[], None]:
    dies = dies_with(os.getpid())

    def begin() -> None:
        if dies is not None:
            dies()
        if cores:
            os.sched_setaffinity(0, cores)

    return begin
