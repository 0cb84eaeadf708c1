"""Advice on `runtime.intra_op_threads` for small networks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbit_runner.determinism.numerics_record import intra_op_threads
from orbit_runner.train.callbacks.base import Callback, Logs
from orbit_runner.utils.log import note

if TYPE_CHECKING:
    from orbit_runner.train.run import Run

# With one thread, a step of the digits CNN (0.2 GFLOPs) runs 1.6 times as fast on two cores, but a
# step of ResNet-20 on CIFAR-10 (31 GFLOPs) only 0.8 times as fast.
_SMALL_STEP_FLOPS = 1e9
# The optimizer updates large variables faster with more threads.
_FEW_PARAMETERS = 200_000
# Shorter runs do not benefit enough from the advice.
_LONG_RUN_STEPS = 1000


class ThreadAdvice(Callback):
    """Logs a note after the first loop of a new run if one thread is faster for its small step."""

    def __init__(self) -> None:
        self._done = False

    def on_loop_end(self, run: Run, logs: Logs) -> None:
        """Logs the note if it applies."""
        if self._done:
            return
        self._done = True
        trainer, runtime = run.trainer, run.config.runtime
        # Changing the number of threads changes the weights of a run that has already started.
        if run.restored or runtime.intra_op_threads or runtime.num_gpus or not trainer:
            return
        if run.plan.train_steps < _LONG_RUN_STEPS:
            return
        flops, threads = trainer.flops, intra_op_threads(runtime)
        if flops and threads > 1 and run.workers.is_chief and _is_small(run, flops):
            note(
                f"note: runtime.intra_op_threads is 0 (auto), so each op uses {threads} threads\n"
                f"  A step of this network is small ({flops / 1e6:.3g} MFLOPs). "
                "runtime.intra_op_threads=1 often trains it faster,\n"
                "  and the weights then do not depend on the number of cores."
            )


def _is_small(run: Run, flops: int) -> bool:
    variables = run.state.model.trainable_variables
    parameters = sum(variable.shape.num_elements() or 0 for variable in variables)
    return flops < _SMALL_STEP_FLOPS and parameters < _FEW_PARAMETERS
