"""`Stage`: what runs around the pieces of a loop of training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

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
