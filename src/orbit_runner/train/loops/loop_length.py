"""How many steps a loop takes."""

from __future__ import annotations

from collections.abc import Callable

from orbit_runner.train.schedule import Plan

_SECONDS = 1.0
_LARGEST_GROWTH = 8.0


class LoopLength:
    """Says how many steps the next loop takes; the weights do not depend on it.

    With `auto` loops grow until one takes about a second: short enough to show progress, long
    enough that the host's share does not count.
    """

    def __init__(
        self,
        steps_per_loop: int | str,
        plan: Plan,
        last_loop: Callable[[], tuple[int, float]],
        records: int = 1,
    ) -> None:
        """Starts with loops of one step.

        Args:
            steps_per_loop: A number, or `auto`.
            plan: The steps at which a loop has to end.
            last_loop: Tells the steps of the last loop, and the seconds that they took; what
                happened after it, such as an evaluation, says nothing about steps.
            records: The most records that may end in a loop, the last one at its end.
        """
        self._fixed = steps_per_loop if isinstance(steps_per_loop, int) else None
        self._plan, self._last_loop, self._records = plan, last_loop, records
        self._length = 1.0
        self._step: int | None = None

    def __call__(self, step: int) -> int:
        """Returns the length of the loop that starts at a step."""
        length = self._fixed or round(self._adapt(int(step)))
        # Orbit itself ends loops where training pauses for an evaluation or a checkpoint.
        to_record = self._plan.next_record(int(step)) - int(step)
        if length <= to_record:
            return max(1, length)
        # Ends with a record all the same: one that two loops share is cut where a run is resumed.
        more = min((length - to_record) // self._plan.summary_interval, self._records - 1)
        return to_record + more * self._plan.summary_interval

    def _adapt(self, step: int) -> float:
        steps, seconds = self._last_loop()
        if self._step is not None and step > self._step and steps:
            self._length = adapt(self._length, steps, seconds, target=_SECONDS)
        self._step = step
        return self._length


def adapt(length: float, steps: int, seconds: float, *, target: float) -> float:
    """Returns the number of steps that take a given time; it grows slowly, and is at least 1.

    Args:
        length: The number so far.
        steps: The steps that were measured.
        seconds: How long they took; the first ones are traced then.
        target: How long they should take.
    """
    wanted = target * steps / max(seconds, 1e-9)
    return max(1.0, min(wanted, length * _LARGEST_GROWTH))
