"""Measures the steps per second of training."""

from __future__ import annotations


class StepTimer:
    """Measures steps per second inside loops; the time between loops does not count."""

    def __init__(self) -> None:
        self.last = 0, 0.0  # steps and seconds of the last loop
        self.reset()

    def reset(self) -> None:
        """Resets the mean."""
        self._steps, self._seconds = 0, 0.0

    def add(self, steps: int, seconds: float) -> None:
        """Adds a loop."""
        self.last = steps, seconds
        self._steps += steps
        self._seconds += seconds

    def steps_per_second(self) -> float:
        """Returns the mean over the loops since the last reset."""
        return self._steps / self._seconds if self._seconds else 0.0
