"""The trackers of a run: each has a thread, so that it cannot delay or end the run."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.config.schema.plugins import TENSORBOARD, TrackerConfig
from orbit_runner.config.serialize import plain_value
from orbit_runner.errors import first_line
from orbit_runner.registry import TRACKERS
from orbit_runner.trackers.base import NamedTracker, RunInfo, Tracker
from orbit_runner.utils.files import read_json_object, write_atomically
from orbit_runner.utils.log import note
from orbit_runner.utils.user_code import load_class


class TrackerIds:
    """Reads and writes the ids by the name of the tracker. Threads may share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        try:
            ids = read_json_object(path)
        except (OSError, ValueError):  # Not written yet, or damaged.
            ids = {}
        self._ids = {name: value for name, value in ids.items() if isinstance(value, str)}

    def get(self, name: str) -> str | None:
        """Returns the id of a tracker, or None if it has none."""
        return self._ids.get(name)

    def put(self, name: str, value: str) -> None:
        """Keeps the id of a tracker. Raises OSError if the file cannot be written."""
        with self._lock:
            if self._ids.get(name) == value or not self._path.parent.is_dir():
                return
            self._ids[name] = value
            write_atomically(self._path, json.dumps(self._ids, indent=1) + "\n")


# Seconds to wait for all trackers at the end of a run. After a signal, the process may be killed
# soon.
_WAIT = 30.0
_WAIT_AFTER_ERROR = 3.0


class Tracking:
    """The trackers of a run; false if there are none."""

    def __init__(self, trackers: Sequence[BackgroundTracker] = ()) -> None:
        self._trackers = tuple(trackers)

    def __bool__(self) -> bool:
        return bool(self._trackers)

    def start(self, info: RunInfo, ids: Path) -> None:
        """Starts all trackers. `ids` is the file that keeps their ids."""
        known = TrackerIds(ids)
        for tracker in self._trackers:
            earlier = dataclasses.replace(info, previous_id=known.get(tracker.name))
            tracker.start(earlier, functools.partial(known.put, tracker.name))

    def log(self, split: str, records: Sequence[tuple[int, Mapping[str, object]]]) -> None:
        """Passes records, each with its step. Returns at once."""
        for tracker in self._trackers:
            tracker.log([(step, split, values) for step, values in records])

    def finish(self, status: str, results: Mapping[str, str]) -> None:
        """Ends all trackers, and waits some seconds until they have sent what is left."""
        wait = _WAIT if status == "finished" else _WAIT_AFTER_ERROR
        deadline = time.monotonic() + wait
        for tracker in self._trackers:
            tracker.end(status, results)
        for tracker in self._trackers:
            tracker.wait(deadline)


def writes_event_files(config: Sequence[TrackerConfig]) -> bool:
    """Returns whether TensorBoard is one of the trackers.

    It has no class: Orbit's summary managers write its event files, which may contain images.
    """
    return any(tracker.class_name == TENSORBOARD for tracker in config)


def make_tracking(config: Sequence[TrackerConfig]) -> Tracking:
    """Returns the trackers that the section `trackers` of a config names, except for TensorBoard.

    Raises SettingError if a class does not exist, is not a tracker, or takes other arguments.
    """
    names: dict[str, int] = {}
    trackers = []
    for index, tracker_config in enumerate(config):
        if tracker_config.class_name == TENSORBOARD:
            continue
        number = names[tracker_config.class_name] = names.get(tracker_config.class_name, 0) + 1
        name = tracker_config.class_name if number == 1 else f"{tracker_config.class_name}#{number}"
        trackers.append(_make(tracker_config, name, f"trackers[{index}]"))
    return Tracking(trackers)


def _make(config: TrackerConfig, name: str, path: str) -> BackgroundTracker:
    arguments = plain_value(config.arguments)
    if config.class_name in TRACKERS:
        named: type[NamedTracker] = TRACKERS.get(config.class_name).load()
        return BackgroundTracker(
            name,
            functools.partial(named, **arguments),
            advice=named.advice,
            if_missing=f"install it: {config.installation}",
        )
    cls = load_class(config.class_name, Tracker, arguments, path)
    return BackgroundTracker(name, lambda: cls(**arguments))


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
            num_unsent = len(self._waiting) + self._unsent
            if self._finished and not num_unsent:
                return
        slow = ": it did not answer in time" if self._thread.is_alive() else ""
        what = f"{num_unsent} records" if num_unsent else "the end of the run"
        where = "; metrics.jsonl has them" if num_unsent else ""
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
