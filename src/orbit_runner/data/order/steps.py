"""Which examples are in the batch of a step, and the inverse. Does not import TensorFlow.

Steps and epochs are numbered from 0, as in the input pipelines.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

import numpy as np

from orbit_runner.data.order.epochs import EpochOrder, Rows

if TYPE_CHECKING:
    from orbit_runner.data.order.mixture import MixtureOrder


@dataclasses.dataclass(frozen=True)
class Occurrences:
    """The occurrences of an example in training, by step; all columns are int64 [k]."""

    steps: np.ndarray
    rows: np.ndarray  # Rows of the global batch.
    epochs: np.ndarray
    places: np.ndarray  # Positions in the epoch, in reading order.


class StepOrder(Protocol):
    """The order of the examples of training, by step."""

    @property
    def size(self) -> int:
        """The number of examples of an epoch."""
        ...

    @property
    def steps_per_epoch(self) -> float:
        """The number of steps in which each example is read once."""
        ...

    def rows(self, step: int) -> Rows:
        """Returns the rows of the global batch of a step."""
        ...

    def occurrences(self, example: int, first: int, stop: int) -> Occurrences:
        """Returns the occurrences of an example in the steps from `first` to `stop` - 1."""
        ...


class RowOrder:
    """Batches with the same number of rows, which continue across the ends of epochs."""

    def __init__(self, order: EpochOrder | MixtureOrder, batch_size: int) -> None:
        self.size = order.size
        self.steps_per_epoch = order.size / batch_size
        self._order = order
        self._batch_size = batch_size

    def rows(self, step: int) -> Rows:
        """Returns the rows of the global batch of a step."""
        first = step * self._batch_size
        return self._order(np.arange(first, first + self._batch_size, dtype=np.int64))

    def occurrences(self, example: int, first: int, stop: int) -> Occurrences:
        """Returns the occurrences of an example in the steps from `first` to `stop` - 1."""
        size = self._batch_size
        positions = self._order.positions(example, first * size, stop * size)
        rows = self._order(positions)
        return Occurrences(positions // size, positions % size, rows.epochs, rows.places)
