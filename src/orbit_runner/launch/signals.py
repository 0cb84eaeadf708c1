"""Ctrl-C, SIGTERM and SIGHUP in the launcher: stored, and checked ten times a second."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from orbit_runner.utils.signals import exit_signals


class Signals:
    """Stores the number of the first signal, and whether Ctrl-C followed it."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.should_kill = False

    @contextlib.contextmanager
    def handler_scope(self) -> Iterator[None]:
        """Handles the signals within a `with` block."""
        if threading.current_thread() is not threading.main_thread():
            yield  # Python delivers signals to the main thread only.
            return
        # Members are in separate sessions, so SIGHUP of a terminal reaches only the launcher.
        before = {number: signal.signal(number, self.receive) for number in exit_signals()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def receive(self, number: int, frame: FrameType | None = None) -> None:
        """Stores a signal."""
        if self.received is None:
            self.received = number
        elif number == signal.SIGINT:
            self.should_kill = True

    @property
    def forwarded_signal(self) -> int:
        """The signal to send to members: SIGINT for Ctrl-C, SIGTERM for all others."""
        return signal.SIGINT if self.received == signal.SIGINT else signal.SIGTERM
