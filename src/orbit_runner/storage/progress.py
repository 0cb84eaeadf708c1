"""A line on standard error for every transfer that a user has to wait for."""

from __future__ import annotations

import sys
import threading
import time

_FIRST_SECONDS, _INTERVAL_SECONDS = 2.0, 5.0
_MEGABYTE = 1e6


class TransferProgress:
    """Reports a transfer that takes longer than two seconds, every five seconds."""

    def __init__(self, what: str, files: int, size: int) -> None:
        """Starts the clock.

        Args:
            what: What is transferred, such as `downloading s3://bucket/data`.
            files: How many files.
            size: How many bytes.
        """
        self._what, self._files, self._size = what, files, size
        self._done_files = self._done_size = 0
        self._next = time.monotonic() + _FIRST_SECONDS
        self._guard = threading.Lock()

    def add(self, size: int) -> None:
        """Counts one file that has been transferred.

        Args:
            size: Its bytes.
        """
        with self._guard:
            self._done_files += 1
            self._done_size += size
            self.report()

    def report(self) -> None:
        """Prints a line where one is due."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _INTERVAL_SECONDS
        print(
            f"{self._what}: {self._done_files} of {self._files} files, "
            f"{self._done_size / _MEGABYTE:.1f} of {self._size / _MEGABYTE:.1f} MB",
            file=sys.stderr,
        )
