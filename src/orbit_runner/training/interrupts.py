"""Ctrl-C, SIGTERM and SIGHUP: finish the loop, save, and leave with the exit code of the signal."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from orbit_runner.errors import RunnerError
from orbit_runner.signals import leave_signals


class Interrupted(RunnerError):
    """A signal ended the run, its checkpoint saved."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


class SignalGuard:
    """Remembers a signal until the loop is done.

    A second Ctrl-C is not waited for: it raises `KeyboardInterrupt` at once.
    """

    def __init__(self, *, on_terminate: bool) -> None:
        """Makes the guard.

        Args:
            on_terminate: Whether SIGTERM is waited for as well as SIGINT and SIGHUP.
        """
        self._on_terminate = on_terminate
        self.received: int | None = None

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Catches the signals for the time of a `with` block."""
        if threading.current_thread() is not threading.main_thread():
            yield  # Python delivers signals to the main thread only.
            return
        numbers = leave_signals(terminate=self._on_terminate)
        before = {number: signal.signal(number, self._receive) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt("nothing was saved since the last checkpoint")
        self.received = number
