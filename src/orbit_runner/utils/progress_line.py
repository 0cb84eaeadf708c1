"""Says how far something is that takes long."""

from __future__ import annotations

import sys
import time

_PATIENCE_SECONDS = 2.0


class Progress:
    """A line on stderr every two seconds."""

    def __init__(self, what: str) -> None:
        """Starts the clock.

        Args:
            what: What is being done.
        """
        self._what, self._told = what, time.monotonic()

    def __call__(self, so_far: str) -> None:
        """Says so, unless it has just been said.

        Args:
            so_far: How far it is.
        """
        if time.monotonic() - self._told > _PATIENCE_SECONDS:
            self._told = time.monotonic()
            print(f"{self._what}: {so_far}", file=sys.stderr)
