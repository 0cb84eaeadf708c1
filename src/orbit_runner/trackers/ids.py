"""`trackers.json`: the ids under which trackers know a run."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from orbit_runner.utils.files import read_json_object, write_atomically


class TrackerIds:
    """Reads and writes the ids by the name of the tracker. Threads may share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        try:
            found = read_json_object(path)
        except (OSError, ValueError):  # Not written yet, or damaged.
            found = {}
        self._ids = {name: value for name, value in found.items() if isinstance(value, str)}

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
