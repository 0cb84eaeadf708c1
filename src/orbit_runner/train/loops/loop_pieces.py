"""Runs a loop in pieces, so that a signal in a long loop is noticed in time to save."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from orbit_runner.train.loops.loop_length import adapt

# The rest of the grace period is for saving.
_SHARE_OF_GRACE = 1 / 6


class LoopPieces:
    """Cuts loops by the time that steps take; weights, records and actions do not depend on it.

    A loop that is stopped between two pieces has fewer steps than Orbit asked for. Its record and
    actions are as after any other loop.

    Attributes:
        stopped: Whether the last loop was stopped.
    """

    def __init__(
        self,
        grace_period: float = math.inf,
        agree: Callable[[int], int] = lambda steps: steps,
    ) -> None:
        """Starts with pieces of one step.

        Args:
            grace_period: Seconds between a signal and the end of the process.
            agree: Called with the steps of the next piece on each worker; returns the number that
                all of them take, or 0 to stop.
        """
        self._seconds, self._agree = grace_period * _SHARE_OF_GRACE, agree
        self._length = 1.0 if math.isfinite(grace_period) else math.inf
        self.stopped = False

    def run(
        self,
        loop: Callable[[Any, tf.Tensor], None],
        iterator: Any,
        num_steps: int,
        synchronize: Callable[[], Any],
        align: Callable[[int], int] = lambda steps: steps,
    ) -> None:
        """Runs the steps of a loop, or at least one piece of them.

        Args:
            loop: Takes some steps.
            iterator: Its first argument.
            num_steps: The steps of the loop.
            synchronize: Waits until all steps are done.
            align: Returns the steps of the next piece, at most those that it is given.
        """
        left, self.stopped = num_steps, False
        while left:
            wanted = align(round(min(left, self._length)))
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
            self._length = adapt(self._length, steps, seconds, target=self._seconds)


def _expect_fewer_steps() -> None:
    """Keeps Orbit from warning that a loop took fewer steps than it was asked for."""
    message = "did not update `global_step` by"
    logging.getLogger("absl").addFilter(lambda record: message not in str(record.msg))
