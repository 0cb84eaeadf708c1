"""Advice on `runtime.intra_op_threads` for small networks."""

from __future__ import annotations

from typing import Any

from orbit_runner.determinism.numerics_record import intra_op_threads
from orbit_runner.train.run import Session

# A step of the digits' CNN has 0.2 GFLOPs and gains from one thread (1.6 times as fast on two
# cores). One of ResNet-20 on CIFAR-10 has 31 and loses (0.8).
_SMALL_STEP_FLOPS = 1e9
# The optimizer updates large variables faster with more threads.
_FEW_PARAMETERS = 200_000
# A shorter run is over before the advice pays.
_LONG_RUN_STEPS = 1000


class ThreadAdvice:
    """Says once, after the first loop of a new run, that one thread is faster for a small step."""

    def __init__(self, session: Session) -> None:
        """Makes the action.

        Args:
            session: The run.
        """
        self._session, self._done = session, False

    def __call__(self, logs: Any) -> None:
        """Writes the note if it applies.

        Args:
            logs: The output of the loop.
        """
        if self._done:
            return
        self._done = True
        session = self._session
        trainer, runtime = session.trainer, session.config.runtime
        # Another number of threads changes the bits of a run that has already started.
        if session.restored or runtime.intra_op_threads or runtime.num_gpus or not trainer:
            return
        if session.plan.train_steps < _LONG_RUN_STEPS:
            return
        flops, threads = trainer.flops, intra_op_threads(runtime)
        if flops and threads > 1 and session.workers.is_chief and self._is_small(flops):
            session.observer.note(
                f"note: runtime.intra_op_threads is 0 (auto), so each op uses {threads} threads\n"
                f"  A step of this network is small ({flops / 1e6:.3g} MFLOPs). "
                "runtime.intra_op_threads=1 often trains it faster,\n"
                "  and the weights then do not depend on the number of cores."
            )

    def _is_small(self, flops: int) -> bool:
        variables = self._session.state.model.trainable_variables
        parameters = sum(variable.shape.num_elements() or 0 for variable in variables)
        return flops < _SMALL_STEP_FLOPS and parameters < _FEW_PARAMETERS
