"""Runs a loop in pieces, so that a signal during a long loop is noticed within a second."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from orbit_runner.train.loops.loop_length import adapt_length

# A longer piece would hardly be faster. If the grace period is short, most of it is for saving.
_LONGEST_SECONDS, _SHARE_OF_GRACE = 1.0, 1 / 6


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

    def run(
        self,
        loop: Callable[[Any, tf.Tensor], None],
        iterator: Any,
        num_steps: int,
        synchronize: Callable[[], Any],
        piece_length: Callable[[int], int] = lambda steps: steps,
    ) -> None:
        """Runs the steps of a loop, or at least one piece of them.

        `synchronize` waits until all steps are done. `piece_length` returns the steps of the next
        piece, at most its argument.
        """
        left, self.stopped = num_steps, False
        while left:
            wanted = piece_length(round(min(left, self._length)))
            steps = self._agree(wanted)
            if not steps and left < num_steps:
                self.stopped = True
                _expect_fewer_steps()
                return
            steps, start = steps or wanted, time.perf_counter()
            loop(iterator, tf.constant(steps, tf.int32))
            synchronize()
            left -= steps
            seconds = time.perf_counter() - start
            self._length = adapt_length(self._length, steps, seconds, target=self._seconds)


def _expect_fewer_steps() -> None:
    """Suppresses Orbit's warning that a loop ran fewer steps than requested."""
    message = "did not update `global_step` by"
    logging.getLogger("absl").addFilter(lambda record: message not in str(record.msg))
