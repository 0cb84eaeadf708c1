"""Calls the methods of a tracker in a thread, so that the tracker cannot delay or end a run."""

from __future__ import annotations

import contextlib
import functools
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orbit_runner.errors import first_line
from orbit_runner.trackers.base import RunInfo, Tracker
from orbit_runner.utils.log import note

# (step, split, values by name)
Record = tuple[int, str, Mapping[str, Any]]

_MAX_WAITING = 20_000  # records
_BATCH = 1000  # records between two calls of `flush`
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 60.0  # seconds before a call is repeated
_USER = re.compile(r"://[^/@\s]+@")


class BackgroundTracker:
    """A tracker with its thread and the records that wait for it.

    A call that fails is repeated, with longer and longer pauses; the first failure in a row is
    reported. If the queue is full, further records are not sent; `metrics.jsonl` has them, too.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Tracker],
        *,
        advice: str = "",  # what to do if the tracker fails
        if_missing: str = "",  # what to do if its package cannot be imported
        max_waiting: int = _MAX_WAITING,
        first_pause: float = _FIRST_PAUSE,
    ) -> None:
        self.name = name
        self._make = make
        self._advice = advice
        self._if_missing = if_missing
        self._max_waiting = max_waiting
        self._first_pause = first_pause
        self._waiting: deque[Record] = deque()
        self._changed = threading.Condition()
        self._ending = threading.Event()
        self._end: tuple[str, Mapping[str, str]] = ("", {})
        self._unsent = 0  # Records that were passed to `log` since the last `flush`, or dropped.
        self._failing = self._finished = False
        self._thread: threading.Thread | None = None

    def start(self, info: RunInfo, keep_id: Callable[[str], None]) -> None:
        """Starts the thread. `keep_id` is called with the id that the tracker returns."""
        self._thread = threading.Thread(
            target=self._work, args=(info, keep_id), name=f"tracker {self.name}", daemon=True
        )
        self._thread.start()

    def log(self, records: Sequence[Record]) -> None:
        """Puts records into the queue."""
        with self._changed:
            room = max(0, self._max_waiting - len(self._waiting))
            self._waiting.extend(records[:room])
            self._unsent += len(records[room:])
            self._changed.notify()

    def end(self, status: str, results: Mapping[str, str]) -> None:
        """Lets the thread send what is left and finish. Does not wait for it."""
        with self._changed:
            self._end = (status, results)
            self._ending.set()
            self._changed.notify()

    def wait(self, deadline: float) -> None:
        """Waits until the thread is done or `time.monotonic()` is `deadline`, and reports if not.

        A thread that is not done continues until the process exits.
        """
        if self._thread is None:
            return
        self._thread.join(max(0.0, deadline - time.monotonic()))
        with self._changed:
            left = len(self._waiting) + self._unsent
            if self._finished and not left:
                return
        slow = ": it did not answer in time" if self._thread.is_alive() else ""
        what = f"{left} records" if left else "the end of the run"
        where = "; metrics.jsonl has them" if left else ""
        note(f"warning: tracker {self.name}: {what} could not be sent{slow}{where}")

    def _work(self, info: RunInfo, keep_id: Callable[[str], None]) -> None:
        trackers: list[Tracker] = []

        def start() -> None:
            if not trackers:
                trackers.append(self._make())
            run_id = trackers[0].start(info)
            if run_id is not None:
                with contextlib.suppress(OSError):  # The run reports a full disk itself.
                    keep_id(str(run_id))

        if not self._repeat(start):
            return
        (tracker,) = trackers
        while batch := self._next_batch():
            for step, split, values in batch:
                numbers = _numbers(values)
                if not self._repeat(functools.partial(tracker.log, step, split, numbers)):
                    return
            if not self._repeat(tracker.flush):
                return
            with self._changed:
                self._unsent -= len(batch)
        self._finished = self._repeat(lambda: tracker.finish(*self._end))

    def _next_batch(self) -> list[Record]:
        """Waits for records and returns some, or [] if the run has ended and none is left."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ending.is_set())
            count = min(len(self._waiting), _BATCH)
            self._unsent += count
            return [self._waiting.popleft() for _ in range(count)]

    def _repeat(self, action: Callable[[], object]) -> bool:
        """Calls a function until it succeeds. Returns whether it has.

        Gives up if it fails after the run has ended, or if a module cannot be imported.
        """
        pause = self._first_pause
        while True:
            last = self._ending.is_set()
            try:
                action()
            except BaseException as error:  # `sys.exit`, too, must not end the thread silently.
                gives_up = last or isinstance(error, ImportError)
                self._report(error, "switched off" if gives_up else "trying again")
                if gives_up:
                    return False
            else:
                if self._failing:
                    note(f"tracker {self.name}: works again")
                self._failing = False
                return True
            self._ending.wait(pause)
            pause = min(2 * pause, _LAST_PAUSE)

    def _report(self, error: BaseException, action: str) -> None:
        if not self._failing:
            reason = _USER.sub("://", f"{type(error).__name__}: {first_line(error)}")
            missing = isinstance(error, ImportError)
            text = self._if_missing if missing and self._if_missing else self._advice
            advice = f"\n  {text}" if text else ""
            note(
                f"warning: tracker {self.name}: {reason}\n"
                f"  {action}; training is not affected{advice}"
            )
        self._failing = True


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Returns the values that are numbers."""
    numbers = {}
    for name, value in values.items():
        with contextlib.suppress(TypeError, ValueError):
            numbers[name] = float(value)
    return numbers
