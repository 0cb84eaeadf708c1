"""Starts each trial in a fresh Python process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable

from orbit_runner.errors import RunnerError
from orbit_runner.launch.process import parent_death_hook
from orbit_runner.sweep.trial_process import TrialCommand


class ColdProcess:
    """A trial in a process and a session of its own, so that Ctrl-C reaches only the sweep."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    def poll(self) -> int | None:
        """Returns the exit code, negative for a signal; None while the process runs."""
        return self._child.poll()

    def send_signal(self, number: int) -> None:
        """Sends a signal; does nothing if the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(number)


class ColdLauncher:
    """Starts trials with `python -m orbit_runner`.

    `start` must be called in the main thread: on Linux, a trial is killed when the thread that
    started it ends.
    """

    def start(self, command: TrialCommand) -> ColdProcess:
        """Starts a trial. Raises `RunnerError` if the log or the program cannot be opened."""
        try:
            command.log.parent.mkdir(parents=True, exist_ok=True)
            with command.log.open("ab") as log:
                child = subprocess.Popen(
                    [sys.executable, "-m", "orbit_runner", *command.arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=dict(command.environ),
                    start_new_session=True,
                    preexec_fn=_prepare(os.getpid(), command.cores),
                )
        except OSError as error:
            raise RunnerError(f"cannot start a trial: {error}") from error
        return ColdProcess(child)

    def close(self) -> None:
        """Does nothing, because no process runs between trials."""


def _prepare(parent: int, cores: tuple[int, ...]) -> Callable[[], None]:
    """Returns a `preexec_fn` that ends the trial with its parent and limits its cores."""
    dies = parent_death_hook(parent)

    def prepare() -> None:
        if dies is not None:
            dies()
        if cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)

    return prepare
