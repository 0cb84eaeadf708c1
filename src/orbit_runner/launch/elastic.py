"""Decides how many workers the next attempt has, if the number may change during a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence


def possible_workers(logical: int, devices: int, least: int, most: int) -> tuple[int, ...]:
    """Returns the numbers of workers from `least` to `most` that are possible, the largest first.

    The devices of all workers, `devices` each, must divide the logical replicas.
    """
    found = range(most, max(least, 1) - 1, -1)
    return tuple(count for count in found if logical % (count * devices) == 0)


class Elastic:
    """Leaves workers out after too many losses, and tries all of them again later.

    `sizes` are the possible numbers of workers, the largest first. A size is given up after
    `restarts` restarts with it. All workers are tried again `rejoin_after` seconds after an attempt
    with fewer has started. One more loss then suffices to go back to fewer.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        restarts: int,
        rejoin_after: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sizes, self._restarts = tuple(sizes), restarts
        self._rejoin_after, self._clock = rejoin_after, clock
        self._size_index = self._loss_count = 0
        self._since = clock()

    @property
    def workers(self) -> int:
        """The number of workers of the next attempt."""
        return self._sizes[self._size_index]

    @property
    def max_workers(self) -> int:
        """The largest number of workers."""
        return self._sizes[0]

    @property
    def can_continue(self) -> bool:
        """Whether another attempt may follow a loss, with as many workers or with fewer."""
        return self._loss_count < self._restarts or self._size_index + 1 < len(self._sizes)

    @property
    def can_grow(self) -> bool:
        """Whether workers are left out, and it is time to try them again."""
        return self._size_index > 0 and self._clock() - self._since >= self._rejoin_after

    def begin(self) -> None:
        """Marks the start of an attempt."""
        self._since = self._clock()

    def record_loss(self) -> str:
        """Counts the loss of a worker, and returns a message about what follows."""
        before, self._loss_count = self.workers, self._loss_count + 1
        if self._loss_count <= self._restarts:
            return (
                f"restarting {_format_workers(before)} from the last checkpoint "
                f"({self._loss_count} of {self._restarts})"
            )
        self._size_index, self._loss_count = self._size_index + 1, 0
        out = before - self.workers
        return (
            f"leaving {_format_workers(out)} out; continuing with {self.workers} from the last "
            "checkpoint"
        )

    def grow(self) -> str:
        """Sets the largest number of workers, and returns a message about what follows."""
        before, self._size_index, self._loss_count = self.workers, 0, self._restarts
        return (
            f"trying {_format_workers(self.max_workers)} again instead of {before}, from this step"
        )


def _format_workers(count: int) -> str:
    return f"{count} worker{'' if count == 1 else 's'}"
