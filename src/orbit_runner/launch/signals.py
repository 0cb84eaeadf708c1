"""Ctrl-C, SIGTERM and SIGHUP in the launcher: remembered, and checked ten times a second."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from orbit_runner.utils.signals import leave_signals


class Signals:
    """Remembers the first signal, and whether a Ctrl-C came after it.

    Attributes:
        received: The number of the first signal.
        at_once: Whether there is no time to save any more.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.at_once = False

    @contextlib.contextmanager
    def installed_scope(self) -> Iterator[None]:
        """Catches the signals for the time of a `with` block."""
        if threading.current_thread() is not threading.main_thread():
            yield  # Python delivers signals to the main thread only.
            return
        # Members are in sessions of their own: SIGHUP of a terminal reaches only the launcher.
        before = {number: signal.signal(number, self.receive) for number in leave_signals()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def receive(self, number: int, frame: FrameType | None = None) -> None:
        """Remembers a signal.

        Args:
            number: The signal.
            frame: Where Python was.
        """
        if self.received is None:
            self.received = number
        elif number == signal.SIGINT:
            self.at_once = True

    @property
    def passed_on(self) -> int:
        """The signal that the members get: a terminal that went away means SIGTERM to them."""
        return signal.SIGINT if self.received == signal.SIGINT else signal.SIGTERM
