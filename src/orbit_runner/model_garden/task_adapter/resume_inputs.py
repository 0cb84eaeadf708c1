"""Going on in the middle of a pipeline that can only begin at its beginning."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

from orbit_runner.utils.log import note

# What takes less is not worth a line.
_SECONDS_UNTOLD = 2.0


class Replayed:
    """A data set whose iterators make the batches of the steps that were taken once more.

    With seeds and deterministic ops a pipeline is a function of (seed, position), so what comes
    after is what would have come. All but the last of those batches are skipped in the pipeline
    itself; asking for that one waits for the rest.
    """

    def __init__(self, dataset: Any, steps: int) -> None:
        """Makes it ready.

        Args:
            dataset: Begins at the last of the steps that were taken.
            steps: How many were taken, at least 1.
        """
        self._dataset, self._steps = dataset, steps

    @property
    def element_spec(self) -> Any:
        """The structure of a step's batch."""
        return self._dataset.element_spec

    def __iter__(self) -> Any:
        """Makes an iterator that stands before the first step that was not taken."""
        iterator = iter(self._dataset)
        with _progress_scope(f"the input of {self._steps} steps is made again"):
            next(iterator)
        return iterator


@contextlib.contextmanager
def _progress_scope(what: str) -> Iterator[None]:
    start = time.monotonic()
    words = f"{what}, for the same batches to follow (trainer.replay_inputs)"
    timer = threading.Timer(_SECONDS_UNTOLD, note, [words])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    seconds = time.monotonic() - start
    if seconds > _SECONDS_UNTOLD:
        note(f"{what}: done in {seconds:.0f} s")
