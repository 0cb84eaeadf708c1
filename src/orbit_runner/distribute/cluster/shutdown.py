"""Coordinates the exit of a chief and its servers, by files in the run directory that they share.

A TensorFlow server runs until it is killed, and is not notified when the run ends. So the chief
writes a file when it ends, and the servers check for it. Conversely, a server that receives SIGTERM
writes a file as well, and keeps running until the chief has saved.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from orbit_runner.distribute.cluster.description import Member

_FOLDER = ".cluster"
_ENDED = "ended.json"
_LEAVING = "leaving"


class ChiefShutdown:
    """The side of the chief."""

    def __init__(self, model_dir: Path) -> None:
        self._folder = model_dir / _FOLDER

    def begin(self) -> None:
        """Removes the files of an earlier run."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for note in (self._folder / _ENDED, *self._folder.glob(f"{_LEAVING}-*.json")):
            note.unlink(missing_ok=True)

    def leaving_members(self) -> list[str]:
        """Returns the members that are about to exit, such as `worker 1`."""
        notes = sorted(self._folder.glob(f"{_LEAVING}-*.json"))
        return [" ".join(note.stem.split("-")[1:]) for note in notes]

    def end(self, code: int) -> None:
        """Tells the servers the exit code of the run, so that they exit.

        Must not be called if the chief will be started again and use the same servers.
        """
        with contextlib.suppress(FileNotFoundError):  # The run directory was removed.
            _write(self._folder / _ENDED, {"exit_code": code})


class ServerShutdown:
    """The side of a server."""

    def __init__(self, model_dir: Path, me: Member) -> None:
        self._ended = model_dir / _FOLDER / _ENDED
        self._leaving = model_dir / _FOLDER / f"{_LEAVING}-{me.role}-{me.index}.json"
        self._leaving.parent.mkdir(parents=True, exist_ok=True)
        self._leaving.unlink(missing_ok=True)
        self._old = _stamp(self._ended)  # Written by an earlier run.

    def announce(self) -> None:
        """Tells the chief that this server is about to exit."""
        with contextlib.suppress(FileNotFoundError):  # The run directory was removed.
            _write(self._leaving, {"pid": os.getpid()})

    def run_exit_code(self) -> int | None:
        """Returns the exit code that the run ended with; None while it is running."""
        stamp = _stamp(self._ended)
        if stamp is None or stamp == self._old:
            return None
        try:
            return int(json.loads(self._ended.read_text(encoding="utf-8"))["exit_code"])
        except OSError:
            return None  # Another run has just started and removed it.


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def _write(path: Path, content: dict[str, int]) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(content) + "\n", encoding="utf-8")
    aside.replace(path)
