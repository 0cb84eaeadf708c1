"""Steps that take their batch but change no weight.

A skipped step advances the global step and the counter of the optimizer, so that learning rates,
random draws and batches of all other steps stay functions of the step. Weights, slots, the average
of the weights, the loss scale and the metrics do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.state.train_state import TrainState
from orbit_runner.train.loops.recorder import Recorder
from orbit_runner.train.loops.stage import Loop, Stage
from orbit_runner.train.watch import Watch

if TYPE_CHECKING:
    from orbit_runner.train.loops.stage import BatchSource


class SkippedSteps(Stage):
    """The steps that a run skips.

    Attributes:
        found: Those that are skipped because they were not finite, in ascending order.
    """

    def __init__(self, configured: Sequence[int], skip: Loop) -> None:
        self._configured = frozenset(configured)
        self._skip = skip  # skips one step
        self.found: tuple[int, ...] = ()

    def __contains__(self, step: int) -> bool:
        return step in self._configured or step in self.found

    def piece_length(self, step: int, steps: int) -> int:
        """Returns how many of the next `steps` steps can run as one piece, from a global step."""
        ahead = [
            skipped_step - 1 - step
            for skipped_step in (*self._configured, *self.found)
            if skipped_step > step
        ]
        before = min(ahead, default=steps)
        return min(steps, before) if before else 1

    def wrap_loop(self, loop: Loop, step: int) -> Loop:
        """Returns what runs a piece; a skipped step is a piece of its own."""
        return self._skip if step + 1 in self else loop


def skip_function(
    state: TrainState,
    take_batch: Callable[[BatchSource], None],
    recorder: Recorder | None,
    watch: Watch | None,
) -> Loop:
    """Returns a loop that skips one step, and takes the record that ends there.

    `take_batch` takes the next batch of the iterator.
    """

    @tf.function(autograph=False)
    def record(step: tf.Tensor) -> None:
        assert recorder is not None
        recorder.start(step)
        recorder.record(step + 1)

    def skip(iterator: BatchSource, first: tf.Tensor, steps: tf.Tensor) -> None:
        take_batch(iterator)
        iterations = state.optimizer.iterations
        iterations.assign(int(iterations.numpy()) + 1)
        state.global_step.assign(int(first) + 1)
        if watch is not None:
            watch.clear()
        if recorder is not None:
            record(first)

    return skip
