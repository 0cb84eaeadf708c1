"""Reasons to end training early: signals, servers that leave, callbacks, the time, a given step."""

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
from orbit_runner.config.durations import duration_seconds
from orbit_runner.distribute.process_group import Workers
from orbit_runner.errors import Interrupted
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


def time_limit(
    max_time: str | float | None, started: float | None = None
) -> Callable[[], bool] | None:
    """Returns whether `trainer.max_time` is over, as a function; None without a limit.

    `started` is when the run started, by `time.monotonic()`; None: now.
    """
    if max_time is None:
        return None
    end = (time.monotonic() if started is None else started) + duration_seconds(max_time)
    return lambda: time.monotonic() >= end


_OTHER_WORKER = "a callback on another worker requested a stop"


class StopTraining(Exception):
    """Raised between two loops of one call of the controller if training is to end early."""


class StoppedAtStep(Interrupted):
    """Raised at the step to stop at, after a checkpoint was saved."""

    def __init__(self, step: int) -> None:
        super().__init__(0, f"stopped at step {step}, as requested")
        self.exit_code = 0


class StopRequests:
    """Collects the reasons to stop, and makes all workers stop at the same step."""

    def __init__(
        self,
        workers: Workers,
        signals: SignalGuard,
        leaving_members: Callable[[], list[str]],  # those that are about to exit
        note: Callable[[str], None],
        *,
        at_step: int | None = None,  # the step at which to save and raise StoppedAtStep
        # Whether the time is over. Each worker has its own clock, so only the chief's may decide.
        is_over: Callable[[], bool] | None = None,
    ) -> None:
        self._workers = workers
        self._note = note
        self._at_step = at_step
        self.signals = signals
        self._leaving_members = leaving_members
        self._is_over = is_over or (lambda: False)
        self.reason = ""  # why a callback asked to stop
        self.is_time_over = False  # whether `trainer.max_time` is over, as agreed by all workers
        self._pause: int | None = None  # a step at which a loop must end
        self._first_step: int | None = None  # the step of the first loop of this start

    def limit(self, step: int, target: int) -> int:
        """Returns the step to train to from `step`: `target`, or where to stop or pause before."""
        ends = [target] if self._at_step is None else [target, self._at_step]
        if self._pause is not None and self._pause > step:
            ends.append(self._pause)
        return min(ends)

    def pause_at(self, step: int) -> None:
        """Makes a loop end at a step, after which training continues."""
        self._pause = step

    def next_loop_length(self, steps: int, step: int, save: Callable[[], object]) -> int:
        """Returns the length of the next loop; all workers must call it together.

        `steps` is this worker's choice. The chief's is returned, because it depends on time
        measurements, which differ. Saves and raises Interrupted if any worker got a signal. Raises
        StopTraining if a callback of any worker asked to stop, or if the time of the run is over.
        """
        chosen = self._exit_or_agree(steps, step, save)
        if self._first_step is None:
            self._first_step = step
        # Each start trains at least once, so that starts that are too short make progress.
        if self.reason or (self.is_time_over and step > self._first_step):
            raise StopTraining
        return chosen

    def agree_on_stop(self) -> str:
        """Returns why a callback of any worker asked to stop, or "" if none did.

        Also updates `is_time_over`. All workers must call it together.
        """
        self._record_stops(
            *self._workers.all_reduce_sum([bool(self.reason), self._chief_is_out_of_time()])
        )
        return self.reason

    def _record_stops(self, stops: int, over: int) -> None:
        if stops and not self.reason:
            self.reason = _OTHER_WORKER
        self.is_time_over = self.is_time_over or bool(over)

    def _chief_is_out_of_time(self) -> bool:
        return self._workers.is_chief and self._is_over()

    def exit_if_requested(self, step: int, save: Callable[[], object]) -> None:
        """Saves and raises Interrupted if any worker got a signal.

        All workers must call it together.
        """
        self._exit_or_agree(0, step, save)

    def _exit_or_agree(self, steps: int, step: int, save: Callable[[], object]) -> int:
        """Returns the steps of the chief, unless a worker got a signal or the step is the last."""
        own = self.signals.received or self._server_signal()
        is_chief = self._workers.is_chief
        chosen, stops, over, *counts = self._workers.all_reduce_sum(
            [
                steps if is_chief else 0,
                bool(self.reason),
                self._chief_is_out_of_time(),
                *(own == number for number in SIGNALS),
            ]
        )
        self._record_stops(stops, over)
        number = next((n for n, count in zip(SIGNALS, counts, strict=True) if count), None)
        if number is not None:
            save()
            self._workers.acknowledge()  # Saving ends with an agreement.
            raise Interrupted.for_step(number, step)
        if self._at_step is not None and step >= self._at_step:
            save()
            self._workers.acknowledge()
            raise StoppedAtStep(step)
        return chosen

    def next_piece_length(self, steps: int) -> int:
        """Returns how many steps all workers run next, or 0 if training is to end before that.

        That is the case if any worker got a signal, or if the time of the run is over. `steps` is
        this worker's choice; the chief's is returned. All workers must call it together.
        """
        requested = bool(self.signals.received or self._leaving_members())
        requested = requested or self._chief_is_out_of_time()
        chosen, count = self._workers.all_reduce_sum(
            [steps if self._workers.is_chief else 0, requested]
        )
        return 0 if count else chosen

    def _server_signal(self) -> int | None:
        leaving = self._leaving_members()
        if not leaving:
            return None
        self._note(f"{', '.join(leaving)}: received a request to stop")
        return signal.SIGTERM
