"""Measures how long each phase of a run takes, such as importing, tracing and training."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator

from orbit_runner.utils.log import LOGGER


class PhaseTimes(logging.Handler):
    """Adds up the seconds of each phase, by the first word of its name.

    A save in the background counts only as long as training waits for it.
    """

    def __init__(self, first: str) -> None:
        super().__init__()
        self._phase, self._since = first, time.monotonic()
        self._seconds: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Starts the phase that a log record names, if it names one."""
        name = vars(record).get("phase")
        if name is not None:
            self._close()
            self._phase = str(name).partition(" ")[0]

    def seconds(self) -> dict[str, float]:
        """Returns the seconds of each phase until now, in order of their first occurrence."""
        self._close()
        return {name: round(seconds, 3) for name, seconds in self._seconds.items()}

    def _close(self) -> None:
        now = time.monotonic()
        self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + now - self._since
        self._since = now


@contextlib.contextmanager
def phase_times_scope(first: str) -> Iterator[PhaseTimes]:
    """Yields the times of the phases that are logged in a `with` block, beginning with `first`."""
    times = PhaseTimes(first)
    LOGGER.addHandler(times)
    try:
        yield times
    finally:
        LOGGER.removeHandler(times)
