"""Locks that divide the trials of a sweep among its processes.

A lock is an advisory `flock` on a file. The kernel releases it when the process ends, even after
SIGKILL, so no clock is involved. A child process does not inherit it.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from orbit_runner.errors import RunnerError

_PAUSE_SECONDS = 0.05


class Claim:
    """A lock that this process holds until `release` or the end of a `with` block."""

    def __init__(self, file: int) -> None:
        self._file = file

    def release(self) -> None:
        """Releases the lock."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


class Claims:
    """The locks in a directory, by name."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def try_acquire(self, name: str) -> Claim | None:
        """Acquires a lock, or returns None if another process holds it."""
        path = self._directory / f"{name}.lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # The file is never removed: two processes could lock two files of the same name.
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise RunnerError(f"--model_dir: cannot write {path}: {error.strerror}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        except OSError as error:
            os.close(file)
            raise RunnerError(
                f"--model_dir: {path} cannot be locked: {error.strerror}\n"
                "use a file system that supports locks; they divide the trials among processes"
            ) from error
        return Claim(file)

    def acquire(self, name: str) -> Claim:
        """Acquires a lock, and waits while another process holds it."""
        while True:
            claim = self.try_acquire(name)
            if claim is not None:
                return claim
            time.sleep(_PAUSE_SECONDS)
