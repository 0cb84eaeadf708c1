"""Handles Ctrl-C, SIGTERM and SIGHUP: finishes the loop, saves and exits with the signal's code."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

from orbit_runner.distribute.process_group import Workers
from orbit_runner.errors import RunnerError
from orbit_runner.utils.signals import leave_signals

# Must be the same on every worker, because the workers add up how many got each signal.
SIGNALS = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))


class Interrupted(RunnerError):
    """Raised when a signal ends the run, after a checkpoint was saved if the trainer saves any."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + number

    @classmethod
    def at_step(cls, number: int, step: int) -> Interrupted:
        """Returns the error for a signal after which a checkpoint was saved."""
        return cls(number, f"{signal.Signals(number).name}: saved at step {step}, exiting")


class SignalGuard:
    """Stores a signal until the current loop is finished.

    SIGTERM is included only if `on_terminate` is true. A second Ctrl-C raises `KeyboardInterrupt`
    immediately.
    """

    def __init__(self, *, on_terminate: bool) -> None:
        self._on_terminate = on_terminate
        self.received: int | None = None

    @contextlib.contextmanager
    def installed_scope(self) -> Iterator[None]:
        """Catches the signals in a `with` block; does nothing outside the main thread."""
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
            raise KeyboardInterrupt("nothing has been saved since the last checkpoint")
        self.received = number


class SignalAction:
    """A train action of Orbit that saves a checkpoint and ends the run if a worker got a signal.

    `manager` is None if the trainer saves no checkpoints. `step` is the global step, an int64
    scalar variable.
    """

    def __init__(self, guard: SignalGuard, workers: Workers, manager: Any, step: Any) -> None:
        self._guard, self._workers, self._manager, self._step = guard, workers, manager, step

    def __call__(self, logs: Mapping[str, Any]) -> None:
        """Saves a checkpoint and raises `Interrupted` if any worker got a signal."""
        counts = self._workers.sums([self._guard.received == number for number in SIGNALS])
        number = next((n for n, count in zip(SIGNALS, counts, strict=True) if count), None)
        if number is None:
            return
        step = int(self._step.numpy())
        if self._manager is None:
            name = signal.Signals(number).name
            raise Interrupted(number, f"{name}: exiting at step {step}; this trainer saves nothing")
        self._manager.save(checkpoint_number=step, check_interval=False)
        self._manager.sync()
        raise Interrupted.at_step(number, step)
