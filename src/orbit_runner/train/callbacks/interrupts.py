"""Ctrl-C, SIGTERM and SIGHUP: finish the loop, save, and leave with the exit code of the signal."""

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

# The same on every worker, since their counts are summed.
SIGNALS = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))


class Interrupted(RunnerError):
    """A signal ended the run, its checkpoint saved."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + number

    @classmethod
    def at_step(cls, number: int, step: int) -> Interrupted:
        """Returns the error for a signal after which a checkpoint was saved."""
        return cls(number, f"{signal.Signals(number).name}: saved at step {step}, leaving")


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
    def installed_scope(self) -> Iterator[None]:
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


class SignalAction:
    """A train action of Orbit: saves a checkpoint and ends the run if a worker got a signal."""

    def __init__(self, guard: SignalGuard, workers: Workers, manager: Any, step: Any) -> None:
        """Makes the action.

        Args:
            guard: Receives the signals of this process.
            workers: The processes that have to leave together.
            manager: A `tf.train.CheckpointManager`; None where the trainer saves nothing.
            step: The global step, an int64 scalar variable.
        """
        self._guard, self._workers, self._manager, self._step = guard, workers, manager, step

    def __call__(self, logs: Mapping[str, Any]) -> None:
        """Ends the run if a signal has arrived.

        Args:
            logs: Not used.

        Raises:
            Interrupted: A signal has arrived, and the checkpoint is saved.
        """
        counts = self._workers.sums([self._guard.received == number for number in SIGNALS])
        number = next((n for n, count in zip(SIGNALS, counts, strict=True) if count), None)
        if number is None:
            return
        step = int(self._step.numpy())
        if self._manager is None:
            name = signal.Signals(number).name
            raise Interrupted(number, f"{name}: leaving at step {step}; this trainer saves nothing")
        self._manager.save(checkpoint_number=step, check_interval=False)
        self._manager.sync()
        raise Interrupted.at_step(number, step)
