"""Handles Ctrl-C, SIGTERM and SIGHUP: saves and exits with a code."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from orbit_runner import exit_codes
from orbit_runner.utils.signals import exit_signals

# Must be the same on every worker, because the workers add up how many got each signal.
SIGNALS = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
# Platforms may send the same request to a process and to its group. Closing a terminal does. And
# `runner sweep` and `runner launch` forward theirs, on a busy machine some seconds later.
_SAME_REQUEST_SECONDS = 5.0
_UNSAVED = "nothing has been saved since the last checkpoint"


class LeftAtOnce(KeyboardInterrupt):
    """Raised at a second signal, anywhere in the main thread; like Ctrl-C, not an `Exception`."""

    def __init__(self, number: int) -> None:
        super().__init__(f"{signal.Signals(number).name} again, {_UNSAVED}")
        self.exit_code = exit_codes.after_signal(number)


class SignalGuard:
    """Stores a signal until the current piece of a loop is finished.

    SIGTERM is included only if `on_terminate` is true. A second Ctrl-C raises `KeyboardInterrupt`
    immediately, and a second signal of another kind `LeftAtOnce`, unless it follows the first
    within five seconds.

    Attributes:
        received: The number of the first signal, or None.
    """

    def __init__(self, *, on_terminate: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._on_terminate = on_terminate
        self._clock = clock
        self._first: float | None = None  # when the first signal came
        self.received: int | None = None

    @contextlib.contextmanager
    def installed_scope(self) -> Iterator[None]:
        """Catches the signals in a `with` block; nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield  # Python delivers signals to the main thread only.
            return
        numbers = exit_signals(terminate=self._on_terminate)
        before = {number: signal.signal(number, self._receive) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, self._handler_after_scope(number, handler))

    def _handler_after_scope(self, number: int, before: Any) -> Any:
        """Returns the handler that replaces that of the scope; `before` is that before the scope.

        By default, a signal ends the process. After the first signal, the second of the same
        request must not do so before the process has said that it has saved.
        """
        if self._first is None or before != signal.SIG_DFL or number == signal.SIGINT:
            return before

        def handle(number: int, frame: FrameType | None) -> None:
            if not self._is_same_request():
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)

        return handle

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._first is None:
            self._first = self._clock()
            self.received = number
        elif number == signal.SIGINT:
            raise KeyboardInterrupt(_UNSAVED)
        elif not self._is_same_request():
            raise LeftAtOnce(number)

    def _is_same_request(self) -> bool:
        assert self._first is not None
        return self._clock() - self._first < _SAME_REQUEST_SECONDS
