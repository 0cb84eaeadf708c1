"""Which example is at which position of the infinite sequence that training reads.

Example j of step s with global batch size B is at position s·B + j. An order is a function of
(seed, position), and has an inverse:

    position ── order(…) ──► example, epoch and place in the epoch
    position ◄── order.positions(…) ── example

Wrapped orders are orders again: without some examples (`ExcludingOrder`), or drawn from groups in
fixed shares (`mixture.MixtureOrder`).
"""

from __future__ import annotations

import abc
from typing import NamedTuple

import numpy as np

from orbit_runner.data.order.arrays import NUMPY, Array, Arrays, namespace_of
from orbit_runner.data.order.keyed_random import random_bits
from orbit_runner.data.order.permutation import invert, permute

NO_EXAMPLES = np.zeros(0, np.int64)


class Rows(NamedTuple):
    """The examples at some positions, such as the rows of a batch; all columns are int64 [b]."""

    examples: Array  # Indices of the examples; -1 for a row of padding.
    epochs: Array
    places: Array  # Positions in the epoch, in reading order.


class EpochOrder(abc.ABC):
    """An order in which each epoch has each example once, for NumPy arrays or for tensors."""

    size: int  # The number of examples of an epoch.

    @abc.abstractmethod
    def examples(self, places: Array, epochs: Array) -> Array:
        """Returns the examples at places of epochs; all are int64 and broadcast."""

    @abc.abstractmethod
    def places(self, examples: Array, epochs: Array) -> Array:
        """Returns the places of examples in epochs; all are int64 and broadcast.

        -1 if an example is left out.
        """

    def __call__(self, positions: Array) -> Rows:
        """Returns the examples at positions, int64 [b]."""
        epochs = positions // self.size
        places = positions - epochs * self.size
        return Rows(self.examples(places, epochs), epochs, places)

    def positions(self, example: int, first: int, stop: int) -> np.ndarray:
        """Returns the positions from `first` to `stop` - 1 at which an example is: int64 [k].

        They are ascending. Only for orders of NumPy arrays.
        """
        epochs = np.arange(first // self.size, max(first, stop + self.size - 1) // self.size)
        places = self.places(np.full(len(epochs), example, np.int64), epochs)
        positions = (epochs * self.size + places)[places >= 0]
        return positions[(positions >= first) & (positions < stop)]


class ShuffledOrder(EpochOrder):
    """Each epoch has a permutation of its own; without `shuffle`, the examples as stored."""

    def __init__(self, size: int, seed: int, shuffle: bool = True) -> None:
        self.size = size
        self.shuffle = shuffle
        self._seed = seed

    def examples(self, places: Array, epochs: Array) -> Array:
        """Returns the examples at places of epochs."""
        return permute(places, self.size, self._keys(epochs)) if self.shuffle else places

    def places(self, examples: Array, epochs: Array) -> Array:
        """Returns the places of examples in epochs."""
        return invert(examples, self.size, self._keys(epochs)) if self.shuffle else examples

    def _keys(self, epochs: Array) -> Array:
        return random_bits(self._seed, 0, epochs, "order")


class ExcludingOrder(EpochOrder):
    """Another order without some examples, int64 [k], ascending: the others move up.

    Let s_0 < s_1 < … be the places that the excluded examples have in an epoch of the other order.
    Below s_j, there are s_j - j of the examples that remain. So the example at place q is at place
    q + k of the other order, where k is the number of excluded examples for which s_j - j ≤ q.
    """

    def __init__(self, order: EpochOrder, excluded: np.ndarray, xp: Arrays = NUMPY) -> None:
        self.size = order.size - len(excluded)
        self._order = order
        self._excluded = xp.store(excluded)
        self._xp = xp

    def examples(self, places: Array, epochs: Array) -> Array:
        """Returns the examples at places of epochs."""

        def skip(places: Array, epoch: Array) -> Array:
            return skip_gaps(places, self._xp.sort(self._order.places(self._excluded, epoch)))

        return self._order.examples(self._xp.map_epochs(skip, places, epochs), epochs)

    def places(self, examples: Array, epochs: Array) -> Array:
        """Returns the places of examples in epochs; -1 for an excluded example. NumPy only."""

        def close_gaps(examples: np.ndarray, epoch: Array) -> np.ndarray:
            gaps = np.sort(self._order.places(self._excluded, epoch))
            places = self._order.places(examples, epoch)
            below = np.searchsorted(gaps, places)
            return np.where(np.isin(examples, self._excluded), -1, places - below)

        return self._xp.map_epochs(close_gaps, examples, epochs)


def exclude_examples(order: EpochOrder, excluded: np.ndarray, xp: Arrays = NUMPY) -> EpochOrder:
    """Returns an order without some examples, int64 [k], ascending."""
    return ExcludingOrder(order, excluded, xp) if len(excluded) else order


def skip_gaps(places: Array, gaps: Array) -> Array:
    """Returns the places in the whole epoch of places in the epoch without the gaps: int64 [b].

    `gaps`, int64 [k], are the places of the excluded examples in the whole epoch, ascending.
    """
    xp = namespace_of(places, gaps)
    below = gaps - xp.arange(gaps.shape[0])
    return places + xp.count_at_most(below, places)
