"""Decides which checkpoints of a run are kept. Imports no tensorflow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from orbit_runner.config.durations import duration_seconds

# Returns when a checkpoint was saved, in seconds since 1970; None if that is not known.
SaveTime = Callable[[int], float | None]


class RetentionRule(Protocol):
    """The interface of an object that decides which checkpoints of a directory are kept."""

    def steps_to_keep(self, steps: Sequence[int], save_time: SaveTime) -> list[int]:
        """Returns the steps to keep; the `checkpoint` file names the last one first."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retention:
    """Keeps the newest checkpoints, and older ones by step and by time.

    The result depends only on the checkpoints themselves, so it survives restarts: once an older
    checkpoint was kept, it is kept again.
    """

    max_to_keep: int | None = 5  # None: all.
    step_interval: int = 0  # Checkpoints at its multiples are kept in addition; 0: none.
    # One of the older checkpoints is kept for each such time, in seconds; None: none.
    time_interval: float | None = None

    def steps_to_keep(self, steps: Sequence[int], save_time: SaveTime) -> list[int]:
        """Returns the steps to keep, in ascending order like `steps`."""
        if self.max_to_keep is None:
            return list(steps)
        by_step = {step for step in steps if self._is_multiple(step)}
        others = [step for step in steps if step not in by_step]
        newest, older = others[-self.max_to_keep :], others[: -self.max_to_keep]
        kept = {*by_step, *newest, *self._select_spaced(older, save_time)}
        return [step for step in steps if step in kept]

    def _is_multiple(self, step: int) -> bool:
        return self.step_interval > 0 and step > 0 and step % self.step_interval == 0

    def _select_spaced(self, older: Sequence[int], save_time: SaveTime) -> Iterator[int]:
        """Yields the first step, and each that was saved long enough after the one before it."""
        if self.time_interval is None:
            return
        last: float | None = None
        for step in older:
            when = save_time(step)
            # Better one too many than the wrong one deleted.
            if when is None or last is None or when - last >= self.time_interval:
                last = last if when is None else when
                yield step


def retention_of(trainer: Any) -> Retention:
    """Returns the retention that a trainer section sets; it may be of Model Garden's class."""
    period = getattr(trainer, "keep_checkpoint_time_interval", None)
    return Retention(
        max_to_keep=trainer.max_to_keep,
        step_interval=getattr(trainer, "keep_checkpoint_interval", 0),
        time_interval=None if period is None else duration_seconds(period),
    )
