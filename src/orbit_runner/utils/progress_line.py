"""Reports the progress of operations that take long."""

from __future__ import annotations

import time

from orbit_runner.utils.log import detail

_PATIENCE_SECONDS = 2.0


class Progress:
    """Logs how far an operation is, at most every two seconds."""

    def __init__(self, what: str) -> None:
        self._what, self._last_logged = what, time.monotonic()

    def __call__(self, so_far: str) -> None:
        """Logs how far the operation is, if a message is due."""
        if time.monotonic() - self._last_logged > _PATIENCE_SECONDS:
            self._last_logged = time.monotonic()
            detail(f"{self._what}: {so_far}")
