"""Measures whether a start has run for long enough, and whether a checkpoint is due by time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from orbit_runner.config.durations import duration_seconds
from orbit_runner.config.schema.trainer import TrainerConfig


class TimeLimits:
    """The times of `trainer.max_time` and `trainer.checkpoint_time_interval`.

    Each worker has its own clock, so only the chief's may decide.
    """

    def __init__(
        self,
        max_time: float = math.inf,  # in seconds
        save_interval: float = math.inf,  # in seconds
        started: float | None = None,  # when the run started, by `clock`; None: now
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock, self._save_interval = clock, save_interval
        self._saved = clock()
        self._end = (self._saved if started is None else started) + max_time

    def is_over(self) -> bool:
        """Returns whether training is to end."""
        return self._clock() >= self._end

    def is_save_due(self) -> bool:
        """Returns whether the last checkpoint is old enough for another one."""
        return self._clock() - self._saved >= self._save_interval

    def restart_save_interval(self) -> None:
        """Records that a checkpoint is saved now."""
        self._saved = self._clock()


def build_time_limits(trainer: TrainerConfig, started: float | None = None) -> TimeLimits:
    """Returns the limits that a trainer section sets; `started` is by `time.monotonic()`."""
    return TimeLimits(
        _seconds(trainer.max_time), _seconds(trainer.checkpoint_time_interval), started
    )


def _seconds(value: str | float | None) -> float:
    return math.inf if value is None else duration_seconds(value)
