"""Reads and checks the checkpoint that a run goes on from, while tensorflow is being imported.

Of a large model that takes seconds, more where the disk is far; afterwards its bytes lie in memory,
too, for TensorFlow to read. Imports no tensorflow.
"""

from __future__ import annotations

import threading
from pathlib import Path

from orbit_runner.checkpoint.discovery import Place
from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of, path_of, places_of

_Stamps = list[tuple[str, int, int]]


class _Check:
    """A check of one checkpoint, in a thread of its own."""

    def __init__(self, place: Place) -> None:
        self._place, self._damage = place, ""
        self._stamps: _Stamps | None = None
        # Not waited for where the process ends before.
        self._thread = threading.Thread(target=self._run, name="checkpoint-check", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            stamps = _stamps(self._place)
            self._damage = self._place.folder.damage(self._place.step)
        except (OSError, ValueError):  # To be met again, by who asks.
            return
        self._stamps = stamps

    def damage(self) -> str:
        """Returns what was found, or looks again where files have changed since."""
        self._thread.join()
        try:
            unchanged = self._stamps is not None and self._stamps == _stamps(self._place)
        except OSError:
            unchanged = False
        if not unchanged:
            return self._place.folder.damage(self._place.step)
        return self._damage


_begun: dict[Path, _Check] = {}


def begin(model_dir: Path) -> None:
    """Starts to check the newest checkpoint of a run; does nothing where there is none.

    Args:
        model_dir: The folder of the run.
    """
    places = places_of(checkpoints_of(model_dir))
    if places:
        _begun[path_of(places[-1]).absolute()] = _Check(places[-1])


def damage(place: Place) -> str:
    """Compares a checkpoint with its record, or waits for the check that was begun.

    Args:
        place: The checkpoint.

    Returns:
        What is wrong with it; "" for a whole one.
    """
    check = _begun.pop(path_of(place).absolute(), None)
    return place.folder.damage(place.step) if check is None else check.damage()


def _stamps(place: Place) -> _Stamps:
    found = [(path.name, path.stat()) for path in place.folder.files(place.step)]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in found]
