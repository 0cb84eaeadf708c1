"""Progress of the download of a file."""

from __future__ import annotations

import time

from orbit_runner.datasets.public_dataset import format_bytes
from orbit_runner.utils.log import detail

_SECONDS = 0.2


class FileProgress:
    """Logs how far the download of a file is, a few times a second. `total` is its bytes."""

    def __init__(self, total: int) -> None:
        self._total, self._since = total, time.monotonic()
        self._first: int | None = None
        self._last = 0.0

    def update(self, done: int) -> None:
        """Logs the progress if a message is due; `done` is the bytes so far."""
        now = time.monotonic()
        if self._first is None:
            self._first, self._since = done, now
        if now - self._last < _SECONDS:
            return
        self._last = now
        text = f"{format_bytes(done)} of {format_bytes(self._total)}"
        seconds, new = now - self._since, done - self._first
        if seconds > 0 and new > 0:
            rate = new / seconds
            text += f", {format_bytes(int(rate))}/s, {(self._total - done) / rate:.0f} s left"
        detail(text, done / max(1, self._total))
