"""Reports transfers that take long."""

from __future__ import annotations

import logging
import threading
import time

_FIRST_SECONDS, _INTERVAL_SECONDS = 2.0, 5.0
_MEGABYTE = 1e6


class TransferProgress:
    """Logs the progress of a transfer, first after two seconds, then every five seconds.

    `what` describes it, such as `downloading s3://bucket/data`. `size` is the total in bytes.
    """

    def __init__(self, what: str, files: int, size: int) -> None:
        self._what, self._files, self._size = what, files, size
        self._done_files = self._done_size = 0
        self._next = time.monotonic() + _FIRST_SECONDS
        self._guard = threading.Lock()

    def add(self, size: int) -> None:
        """Counts a file of `size` bytes that has been transferred."""
        with self._guard:
            self._done_files += 1
            self._done_size += size
            self.report()

    def report(self) -> None:
        """Logs the progress if a report is due."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _INTERVAL_SECONDS
        text = (
            f"{self._what}: {self._done_files} of {self._files} files, "
            f"{self._done_size / _MEGABYTE:.1f} of {self._size / _MEGABYTE:.1f} MB"
        )
        # As `utils.log.detail`, which this layer cannot import.
        values = {"detail": text, "fraction": self._done_size / max(1, self._size)}
        logging.getLogger("orbit_runner").info(text, extra=values)
