"""How a chief and its servers part: by notes in the folder of the run, which all of them see.

A TensorFlow server runs until it is killed, and has no way to hear that the run is over. So the
chief leaves a note when it ends, and the servers look for it. The other way round, a server that is
told to go (SIGTERM) leaves a note as well, and stays until the chief has saved.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from orbit_runner.distribute.cluster.description import Member

_FOLDER, _ENDED, _LEAVING = ".cluster", "ended.json", "leaving"


class Host:
    """The chief's side."""

    def __init__(self, model_dir: Path) -> None:
        """Does nothing yet.

        Args:
            model_dir: The folder of the run.
        """
        self._folder = model_dir / _FOLDER

    def begin(self) -> None:
        """Removes what a run before left there."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for note in (self._folder / _ENDED, *self._folder.glob(f"{_LEAVING}-*.json")):
            note.unlink(missing_ok=True)

    def leaving(self) -> list[str]:
        """Returns the members that are about to go, such as `worker 1`."""
        notes = sorted(self._folder.glob(f"{_LEAVING}-*.json"))
        return [" ".join(note.stem.split("-")[1:]) for note in notes]

    def end(self, code: int) -> None:
        """Lets the servers go; not for an end after which the chief comes back to them.

        Args:
            code: The exit code of the run.
        """
        _write(self._folder / _ENDED, {"exit_code": code})


class Guest:
    """A server's side."""

    def __init__(self, model_dir: Path, me: Member) -> None:
        """Remembers the note that is there already: it is of a run before.

        Args:
            model_dir: The folder of the run.
            me: This server.
        """
        self._ended = model_dir / _FOLDER / _ENDED
        self._leaving = model_dir / _FOLDER / f"{_LEAVING}-{me.role}-{me.index}.json"
        self._leaving.unlink(missing_ok=True)
        self._old = _stamp(self._ended)

    def announce(self) -> None:
        """Tells the chief that this server has to go."""
        _write(self._leaving, {"pid": os.getpid()})

    def left(self) -> int | None:
        """Returns the exit code that the run ended with; None while it goes on."""
        stamp = _stamp(self._ended)
        if stamp is None or stamp == self._old:
            return None
        try:
            return int(json.loads(self._ended.read_text(encoding="utf-8"))["exit_code"])
        except OSError:
            return None  # Another run has just begun.


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def _write(path: Path, content: dict[str, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(content) + "\n", encoding="utf-8")
    aside.replace(path)
