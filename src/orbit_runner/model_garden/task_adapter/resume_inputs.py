"""Resumes input pipelines that can only start at their beginning."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

from orbit_runner.utils.log import note

# Shorter waits are not reported.
_QUIET_SECONDS = 2.0


class ReplayedDataset:
    """A dataset whose iterators first make the batches of the steps before the run was resumed.

    With seeds and deterministic ops, a batch is a function of (seed, position), so the batches
    after these are the same as without an interruption. `steps`, at least 1, is the number of steps
    before the run was resumed. `dataset` must skip their batches except for the last one; getting
    that one waits for the skipped ones.
    """

    def __init__(self, dataset: Any, steps: int) -> None:
        self._dataset, self._steps = dataset, steps

    @property
    def element_spec(self) -> Any:
        """The structure of a step's batch."""
        return self._dataset.element_spec

    def __iter__(self) -> Any:
        iterator = iter(self._dataset)
        with _progress_scope(f"replaying the input of {self._steps} steps"):
            next(iterator)
        return iterator


@contextlib.contextmanager
def _progress_scope(what: str) -> Iterator[None]:
    start = time.monotonic()
    text = f"{what}, so that the same batches follow (trainer.replay_inputs)"
    timer = threading.Timer(_QUIET_SECONDS, note, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    seconds = time.monotonic() - start
    if seconds > _QUIET_SECONDS:
        note(f"{what}: done in {seconds:.0f} s")
