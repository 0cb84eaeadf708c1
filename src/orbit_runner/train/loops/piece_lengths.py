"""Computes how many steps a worker receives at once."""

from __future__ import annotations

# Pieces are short, so that little is lost with a worker and workers do not wait long for each other
# at the end of a loop. They are longer if starting one would take more than a tenth of its time.
_PIECE_SECONDS, _MAX_START_SHARE = 0.2, 0.1
_SHARES = 4


class Pace:
    """Splits loops into pieces by the time that steps take.

    Until that is known, each worker receives one piece, and the pieces become longer.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._size, self._first = 1, 0.0
        self._step, self._wanted = 0.0, 0.0

    def cut(self, steps: int) -> list[int]:
        """Returns the lengths of the next pieces of the remaining `steps` of a loop.

        They include all steps as soon as it is known how long a step takes.
        """
        count = min(self._workers, steps)
        if not self._step:
            known = self._size * count
            return [self._size] * count if known <= steps else _split_evenly(steps, count)
        # Several pieces for each worker, because some workers are slower, but not so many that
        # starting them takes long.
        several = steps // (self._workers * _SHARES)
        size = min(self._wanted / self._step, max(self._wanted / self._step / _SHARES, several))
        return _split_evenly(steps, max(count, round(steps / max(1.0, size))))

    def record_time(self, lengths: list[int], seconds: float) -> None:
        """Records the seconds from sending the first of the pieces to the end of the last one."""
        if self._step:
            return
        length = max(lengths)
        if length == 1:
            # The first piece is not representative, because the step is traced then.
            self._first, self._size = (seconds, 4) if self._first else (float("inf"), 1)
        elif seconds > max(2 * self._first, _PIECE_SECONDS / _SHARES):
            self._step = (seconds - self._first) / (length - 1)
            start_seconds = max(0.0, self._first - self._step)
            self._wanted = max(_PIECE_SECONDS, start_seconds / _MAX_START_SHARE)
        elif length >= self._size:
            self._size *= 4


def _split_evenly(steps: int, count: int) -> list[int]:
    return [steps // count + (place < steps % count) for place in range(count)]
