"""How many steps a worker is given at once."""

from __future__ import annotations

# Short enough that little is lost with a worker, and that none waits long for the others at the end
# of a loop; longer where the beginning of a piece takes more than a small part of it.
_MOST_SECONDS, _MOST_BEGINNING = 0.2, 0.1
_SHARES = 4


class Pace:
    """Cuts loops into pieces by the time that steps take.

    Until that is known, each worker is given one piece, the next ones being longer.
    """

    def __init__(self, workers: int) -> None:
        """Starts with pieces of one step.

        Args:
            workers: The number of workers.
        """
        self._workers = workers
        self._size, self._first = 1, 0.0
        self._step, self._wanted = 0.0, 0.0

    def cut(self, steps: int) -> list[int]:
        """Cuts the next pieces off a number of steps.

        Args:
            steps: The steps that are left of a loop.

        Returns:
            The lengths of some pieces; of all, once it is known how long steps take.
        """
        count = min(self._workers, steps)
        if not self._step:
            known = self._size * count
            return [self._size] * count if known <= steps else _even(steps, count)
        # Several for each worker, for some are slower; but not so many that beginning them counts.
        several = steps // (self._workers * _SHARES)
        size = min(self._wanted / self._step, max(self._wanted / self._step / _SHARES, several))
        return _even(steps, max(count, round(steps / max(1.0, size))))

    def took(self, lengths: list[int], seconds: float) -> None:
        """Takes in how long pieces took.

        Args:
            lengths: What `cut` returned.
            seconds: From handing out the first to the end of the last.
        """
        if self._step:
            return
        length = max(lengths)
        if length == 1:
            # The very first is no measure: the step is traced then.
            self._first, self._size = (seconds, 4) if self._first else (float("inf"), 1)
        elif seconds > max(2 * self._first, _MOST_SECONDS / _SHARES):
            self._step = (seconds - self._first) / (length - 1)
            beginning = max(0.0, self._first - self._step)
            self._wanted = max(_MOST_SECONDS, beginning / _MOST_BEGINNING)
        elif length >= self._size:
            self._size *= 4


def _even(steps: int, count: int) -> list[int]:
    return [steps // count + (place < steps % count) for place in range(count)]
