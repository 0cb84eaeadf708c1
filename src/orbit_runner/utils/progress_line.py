"""Reports the progress of operations that take long."""

from __future__ import annotations

import sys
import time

_PATIENCE_SECONDS = 2.0


class Progress:
    """Prints progress on standard error, at most every two seconds."""

    def __init__(self, what: str) -> None:
        self._what, self._told = what, time.monotonic()

    def __call__(self, so_far: str) -> None:
        """Prints how far the operation is, if a line is due."""
        if time.monotonic() - self._told > _PATIENCE_SECONDS:
            self._told = time.monotonic()
            print(f"{self._what}: {so_far}", file=sys.stderr)
