"""Reads and checks the checkpoint that a run resumes from while tensorflow is being imported.

For a large model this takes seconds, and more on a remote disk. Afterwards, TensorFlow reads the
files from the operating system's cache. Imports no tensorflow.
"""

from __future__ import annotations

import threading
from pathlib import Path

from orbit_runner.checkpoint.latest_checkpoint import (
    CheckpointLocation,
    checkpoints_of,
    list_checkpoints,
    path_of,
)

_Stamps = list[tuple[str, int, int]]


class _Check:
    """Checks one checkpoint in a background thread."""

    def __init__(self, place: CheckpointLocation) -> None:
        self._place = place
        self._damage = ""
        self._stamps: _Stamps | None = None
        # A daemon, so that the process can end before the check does.
        self._thread = threading.Thread(target=self._run, name="checkpoint-check", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            stamps = _stamps(self._place)
            self._damage = self._place.folder.damage(self._place.step)
        except (OSError, ValueError):  # `find_damage` checks again and reports it.
            return
        self._stamps = stamps

    def damage(self) -> str:
        """Waits for the result and returns it. Checks again if files have changed since."""
        self._thread.join()
        try:
            unchanged = self._stamps is not None and self._stamps == _stamps(self._place)
        except OSError:
            unchanged = False
        if not unchanged:
            return self._place.folder.damage(self._place.step)
        return self._damage


_checks: dict[Path, _Check] = {}


def start_check(model_dir: Path) -> None:
    """Starts checking the latest checkpoint of a run, if there is one."""
    places = list_checkpoints(checkpoints_of(model_dir))
    if places:
        _checks[path_of(places[-1]).absolute()] = _Check(places[-1])


def find_damage(place: CheckpointLocation) -> str:
    """Returns what is wrong with the files of a checkpoint, or "" if they are intact.

    Waits for the check that `start_check` started, or checks the files now if it started none.
    """
    check = _checks.pop(path_of(place).absolute(), None)
    return place.folder.damage(place.step) if check is None else check.damage()


def _stamps(place: CheckpointLocation) -> _Stamps:
    files = [(path.name, path.stat()) for path in place.folder.files(place.step)]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in files]
