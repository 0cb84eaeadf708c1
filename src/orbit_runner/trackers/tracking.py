"""Builds the trackers that a config names, and passes the records of a run to all of them."""

from __future__ import annotations

import dataclasses
import functools
import json
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from orbit_runner.config.schema.plugins import TENSORBOARD, TrackerConfig
from orbit_runner.config.serialize import plain_value
from orbit_runner.registry import TRACKERS
from orbit_runner.trackers.background import BackgroundTracker
from orbit_runner.trackers.base import NamedTracker, RunInfo, Tracker
from orbit_runner.utils.files import read_json_object, write_atomically
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
