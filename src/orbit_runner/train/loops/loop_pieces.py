"""Runs a loop in pieces, so that a signal during a long loop is noticed within a second."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import tensorflow as tf

from orbit_runner.train.schedule import Plan

if TYPE_CHECKING:
    from orbit_runner.tf_internals import PerWorkerDistributedIterator

    # An iterator over batches, distributed to the replicas or not.
    BatchIterator: TypeAlias = (
        tf.data.Iterator | tf.distribute.DistributedIterator | PerWorkerDistributedIterator
    )
    # What a loop gets its batches from: one for each task if several are trained together; () if
    # its steps make their batches.
    BatchSource: TypeAlias = BatchIterator | Mapping[str, BatchIterator] | tuple[()]
    # Values by name: tensors in a step, numbers and arrays after it; nested if there are several
    # tasks.
    Results: TypeAlias = dict[str, Any]


# Runs steps. The arguments are an iterator over the batches, the global step, and the number of
# steps; both are int64 scalars.
Loop = Callable[[Any, tf.Tensor, tf.Tensor], None]


class Stage:
    """A part of the loop of training, such as the profiler. It does nothing by default.

    A loop consists of pieces. For each of them, all stages are called in order: to find its length,
    to decide what runs it, and when it has ended.
    """

    def piece_length(self, step: int, steps: int) -> int:
        """Returns how many of the next `steps` steps can run as one piece, from a global step."""
        return steps

    def wrap_loop(self, loop: Loop, step: int) -> Loop:
        """Returns what runs the piece that starts at a global step in place of `loop`."""
        return loop

    def end_piece(self, step: int) -> None:
        """Called after each piece with the global step."""


_SECONDS = 1.0
_LARGEST_GROWTH = 8.0


class LoopLength:
    """Computes the number of steps of the next loop; the weights do not depend on it.

    With `auto`, loops grow until one takes about a second. That is short enough to show progress,
    and long enough for the overhead of the host not to matter.
    """

    def __init__(
        self,
        steps_per_loop: int | str,
        plan: Plan,
        # Returns the steps of the last loop and how many seconds they took, without what happened
        # after the loop, such as an evaluation.
        last_loop: Callable[[], tuple[int, float]],
        records: int = 1,  # the maximum number of records in a loop, including that at its end
    ) -> None:
        self._fixed = steps_per_loop if isinstance(steps_per_loop, int) else None
        self._plan = plan
        self._last_loop = last_loop
        self._records = records
        self._length = 1.0
        self._step: int | None = None

    def __call__(self, step: int) -> int:
        """Returns the length of the loop that starts at a step."""
        length = self._fixed or round(self._adapt(int(step)))
        # Orbit itself ends loops at steps at which training pauses to evaluate or save.
        to_record = self._plan.next_record(int(step)) - int(step)
        if length <= to_record:
            return max(1, length)
        # The loop must end with a record, because a resumed run would cut a record that two loops
        # share.
        more = min((length - to_record) // self._plan.summary_interval, self._records - 1)
        return to_record + more * self._plan.summary_interval

    def _adapt(self, step: int) -> float:
        steps, seconds = self._last_loop()
        if self._step is not None and step > self._step and steps:
            self._length = adapt_length(self._length, steps, seconds, target=_SECONDS)
        self._step = step
        return self._length


def adapt_length(length: float, steps: int, seconds: float, *, target: float) -> float:
    """Returns the number of steps that take `target` seconds, at least 1.

    `steps` took `seconds`, which may include tracing. The result is at most eight times `length`,
    the previous number.
    """
    wanted = target * steps / max(seconds, 1e-9)
    return max(1.0, min(wanted, length * _LARGEST_GROWTH))


# A longer piece would hardly be faster. If the grace period is short, most of it is for saving.
_LONGEST_SECONDS = 1.0
_SHARE_OF_GRACE = 1 / 6


class LoopPieces:
    """Splits loops by the time that steps take; weights, records and actions do not depend on it.

    A loop that is stopped between two pieces has fewer steps than Orbit requested. Its record and
    actions are the same as after any other loop.
    """

    def __init__(
        self,
        # Seconds between a signal and the end of the process.
        grace_period: float = math.inf,
        # Called with the steps of this worker's next piece. Returns the number of steps that all
        # workers run, or 0 to stop.
        agree: Callable[[int], int] = lambda steps: steps,
    ) -> None:
        self._seconds = min(_LONGEST_SECONDS, grace_period * _SHARE_OF_GRACE)
        self._agree = agree
        self._length = 1.0 if math.isfinite(grace_period) else math.inf
        self.stopped = False  # whether the last loop was stopped

    def lengths(self, num_steps: int, piece_length: Callable[[int], int]) -> Iterator[int]:
        """Yields the lengths of the pieces of a loop: of all its steps, or of at least one piece.

        The steps of a piece must be done when the next is asked for. `piece_length` returns the
        steps of the next piece, at most its argument.
        """
        left = num_steps
        self.stopped = False
        while left:
            wanted = piece_length(round(min(left, self._length)))
            steps = self._agree(wanted)
            if not steps and left < num_steps:
                self.stopped = True
                return
            steps = steps or wanted
            start = time.perf_counter()
            yield steps
            left -= steps
            seconds = time.perf_counter() - start
            self._length = adapt_length(self._length, steps, seconds, target=self._seconds)

    @contextlib.contextmanager
    def expected_stop_scope(self) -> Iterator[None]:
        """Hides Orbit's warning in a `with` block that a loop which was stopped has fewer steps."""
        log = logging.getLogger("absl")

        def is_shown(record: logging.LogRecord) -> bool:
            is_of_steps = "did not update `global_step` by" in str(record.msg)
            return not (self.stopped and is_of_steps)

        log.addFilter(is_shown)
        try:
            yield
        finally:
            log.removeFilter(is_shown)
