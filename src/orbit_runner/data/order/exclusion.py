"""The order of the examples of an epoch without some of them. Does not import TensorFlow."""

from __future__ import annotations

import numpy as np

from orbit_runner.data.order.sequences import Sequence
from orbit_runner.data.sampling.numpy_exclusion import skip_gaps


def exclude_examples(sequence: Sequence, excluded: np.ndarray) -> Sequence:
    """Returns a sequence without some examples, int64 [k], ascending."""
    return ExcludingSequence(sequence, excluded) if len(excluded) else sequence


class ExcludingSequence:
    """The order of another sequence without some examples: the others move up."""

    def __init__(self, sequence: Sequence, excluded: np.ndarray) -> None:
        self.size = sequence.size - len(excluded)
        self._sequence, self._excluded = sequence, excluded

    def examples(self, places: np.ndarray, epoch: int) -> np.ndarray:
        """Returns the examples at places of an epoch."""
        gaps = np.sort(self.epoch_places(self._excluded, epoch))
        return self._sequence.examples(skip_gaps(places, gaps), epoch)

    def places(self, example: int, epochs: np.ndarray) -> np.ndarray:
        """Returns the place of an example in each epoch; -1 if it is left out."""
        if example in self._excluded:
            return np.full(len(epochs), -1, np.int64)
        found = self._sequence.places(example, epochs)
        below = [
            np.count_nonzero(self.epoch_places(self._excluded, int(epoch)) < place)
            for place, epoch in zip(found, epochs, strict=True)
        ]
        return found - np.array(below, np.int64)

    def epoch_places(self, examples: np.ndarray, epoch: int) -> np.ndarray:
        """Returns the places of examples in an epoch of the whole sequence."""
        return self._sequence.epoch_places(examples, epoch)
