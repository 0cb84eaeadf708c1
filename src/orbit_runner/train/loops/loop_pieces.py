"""The length of a loop, and the stages that cut it into pieces."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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


# A longer loop would hardly be faster. If the grace period is short, most of it is for saving.
_LONGEST_SECONDS = 1.0
_SHARE_OF_GRACE = 1 / 6
_LARGEST_GROWTH = 8.0


class LoopLength:
    """Computes the number of steps of the next loop; weights and records do not depend on it.

    Loops grow until one takes about a second. That is short enough to show progress and to notice
    a signal in time, and long enough for the overhead of the host not to matter.
    """

    def __init__(
        self,
        plan: Plan,
        # Returns the steps of the last loop and how many seconds they took, without what happened
        # after the loop, such as an evaluation.
        last_loop: Callable[[], tuple[int, float]],
        *,
        most_steps: float = math.inf,
        most_records: int = 1,  # in a loop, including the one at its end
        grace_period: float = math.inf,  # the seconds between a signal and the end of the process
    ) -> None:
        self._plan = plan
        self._last_loop = last_loop
        self._most_steps = most_steps
        self._most_records = most_records
        self._seconds = min(_LONGEST_SECONDS, grace_period * _SHARE_OF_GRACE)
        self._length = 1.0

    def __call__(self, step: int) -> int:
        """Returns the length of the loop that starts at a step."""
        steps, seconds = self._last_loop()
        if steps:  # Their time may include tracing.
            target = self._seconds * steps / max(seconds, 1e-9)
            self._length = max(1.0, min(target, self._length * _LARGEST_GROWTH))
        length = round(min(self._length, self._most_steps))
        # Orbit itself ends loops at steps at which training pauses to evaluate or save.
        to_record = self._plan.next_record(step) - step
        if length <= to_record:
            return length
        # The loop must end with a record, because a resumed run would cut a record that two loops
        # share.
        more = min((length - to_record) // self._plan.summary_interval, self._most_records - 1)
        return to_record + more * self._plan.summary_interval
