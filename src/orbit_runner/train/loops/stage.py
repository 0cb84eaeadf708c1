"""`Stage`: what runs around the pieces of a loop of training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import tensorflow as tf

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
    # The condition, the body and the loop variables of a `tf.while_loop`.
    WhileArguments: TypeAlias = tuple[
        Callable[[tf.Tensor], tf.Tensor], Callable[[tf.Tensor], list[tf.Tensor]], list[tf.Tensor]
    ]


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
