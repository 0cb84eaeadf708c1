"""Leaves a run at a step as Ctrl-C would: what is due there is done, and nothing else."""

from __future__ import annotations

import signal
from typing import ClassVar

import orbit


class LeavingController(orbit.Controller):
    """A controller that goes no further than one step.

    A run that simply ended there would evaluate at its last step, and what evaluations leave in
    the state (the best result, the memory of early stopping) would not be that of a run which
    only passed the step, or was interrupted at it.
    """

    last_step: ClassVar[int]
    left: ClassVar[bool] = False

    def train(self, steps: int, checkpoint_at_completion: bool = True) -> None:
        """Trains to a step, or to the last one if that comes first; from there on it leaves.

        Args:
            steps: The global step to train to.
            checkpoint_at_completion: As in Orbit.

        Raises:
            Interrupted: The last step had been reached; its checkpoint is saved.
        """
        if int(self.global_step.numpy()) < self.last_step:
            super().train(min(steps, self.last_step), checkpoint_at_completion)
            return
        type(self).left = True
        # The run looks for signals before each loop, saves, and leaves.
        signal.raise_signal(signal.SIGINT)
        super().train(steps, checkpoint_at_completion)


def leaving_at(step: int) -> type[LeavingController]:
    """Returns the class of a controller that leaves at a step; for the main thread only.

    Args:
        step: The step, below the last one of the run.
    """
    return type("Leaving", (LeavingController,), {"last_step": step})
