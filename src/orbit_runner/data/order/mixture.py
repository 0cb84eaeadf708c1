"""Mixtures of groups of examples, such as sources or classes, in fixed shares.

The positions of the infinite sequence that training reads are divided into blocks of equal length.
At the end of each block, each group has had its share of all positions so far, rounded up or down.
Which positions of a block belong to which group is random. So the number of positions that a group
has before a block depends only on the number of the block.

Each pass of a group contains all of its examples once, in an order of its own.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from orbit_runner.data.order.arrays import NUMPY, Array, Arrays
from orbit_runner.data.order.epochs import (
    NO_EXAMPLES,
    EpochOrder,
    Rows,
    ShuffledOrder,
    exclude_examples,
)
from orbit_runner.data.order.keyed_random import random_bits
from orbit_runner.data.order.permutation import SegmentPermutation, invert, permute
from orbit_runner.errors import DataError

# Positions times this must be below 2^63, which is enough for 5·10^11 examples.
_LARGEST_WHOLE = 2**24
# The rounding of shares moves a turn by at most one block from where its share alone would put it.
_NEAR = np.arange(-2, 3)


@dataclasses.dataclass(frozen=True, eq=False)
class Mixture:
    """Groups of examples, and the share of each in training.

    Attributes:
        members: The examples that are used, group by group, int64 [n].
        sizes: The number of examples of each group, int64 [groups].
        edges: The shares as sums of integers, int64 [groups + 1]: group g has (edges[g + 1] -
            edges[g]) / edges[-1] of all positions. edges[0] is 0.
    """

    members: np.ndarray
    sizes: np.ndarray
    edges: np.ndarray

    @property
    def size(self) -> int:
        """The number of examples that are used."""
        return len(self.members)

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """Where each group starts in `members`, int64 [groups]."""
        return np.cumsum(self.sizes) - self.sizes

    @functools.cached_property
    def block(self) -> int:
        """The number of positions of a block: each group has at least one on average."""
        # So that the rounded sum of the turns of a group never decreases from block to block.
        return -(-int(self.edges[-1]) // int(np.diff(self.edges).min()))

    def count_below_edge(self, position: Array, edge: Array) -> Array:
        """Returns how many positions before `position`, the start of a block, are below `edge`."""
        return position * edge // int(self.edges[-1])


class MixtureOrder:
    """The order of the examples of a mixture as a function of (seed, position).

    An epoch has as many examples as the mixture. `Rows.epochs` are the passes of the groups, and
    `Rows.places` the places in these passes. If `shuffle` is False, each group keeps its stored
    order, and the positions of a block are divided in the order of the groups.
    """

    def __init__(
        self, mixture: Mixture, seed: int, shuffle: bool = True, xp: Arrays = NUMPY
    ) -> None:
        self.size = mixture.size
        self._mixture = mixture
        self._seed = seed
        self._shuffle = shuffle
        self._xp = xp
        self._edges = xp.store(mixture.edges)
        self._members = xp.store(mixture.members)
        self._starts, self._sizes = xp.store(mixture.starts), xp.store(mixture.sizes)
        self._permute = SegmentPermutation(mixture.sizes, xp)

    def __call__(self, positions: Array) -> Rows:
        """Returns the examples at positions, int64 [b]."""
        xp = self._xp
        length = self._mixture.block
        blocks = positions // length
        slots = positions - blocks * length
        if self._shuffle:
            slots = permute(slots, length, random_bits(self._seed, 0, blocks, "mixture"))
        groups, turns = self._turns(blocks * length, slots)
        sizes = xp.take(self._sizes, groups)
        passes = turns // sizes
        places = turns - passes * sizes
        inner = places
        if self._shuffle:
            inner = self._permute(places, groups, random_bits(self._seed, groups, passes, "passes"))
        members = xp.take(self._members, xp.take(self._starts, groups) + inner)
        return Rows(members, passes, places)

    def _turns(self, starts: Array, slots: Array) -> tuple[Array, Array]:
        """Returns the group at each slot of a block, and the turn of the group, from 0.

        `starts`, int64 [b], are the first positions of the blocks. Of their slots, int64 [b], those
        of group 0 come first.
        """
        xp = self._xp
        mixture = self._mixture
        groups = xp.zeros_like(slots)
        last = len(mixture.sizes) - 1
        step = 1 << max(0, last.bit_length() - 1)
        while step:  # A binary search for the last group that starts at or before the slot.
            higher = xp.where(groups + step > last, groups, groups + step)
            groups = xp.where(self._first_slot(starts, higher) <= slots, higher, groups)
            step //= 2
        turns = self._earlier_turns(starts, groups) + slots - self._first_slot(starts, groups)
        return groups, turns

    def _first_slot(self, starts: Array, groups: Array) -> Array:
        """Returns the first slot of a group in the blocks that start at some positions."""
        mixture = self._mixture
        edges = self._xp.take(self._edges, groups)
        before = mixture.count_below_edge(starts, edges)
        return mixture.count_below_edge(starts + mixture.block, edges) - before

    def _earlier_turns(self, starts: Array, groups: Array) -> Array:
        """Returns how many turns a group has had before the blocks that start at some positions."""
        mixture = self._mixture
        xp = self._xp
        upper = mixture.count_below_edge(starts, xp.take(self._edges, groups + 1))
        return upper - mixture.count_below_edge(starts, xp.take(self._edges, groups))

    def positions(self, example: int, first: int, stop: int) -> np.ndarray:
        """Returns the positions from `first` to `stop` - 1 at which an example is, ascending."""
        mixture = self._mixture
        length = self._mixture.block
        member = np.flatnonzero(mixture.members == example)
        if not len(member) or stop <= first:
            return NO_EXAMPLES
        group = np.searchsorted(mixture.starts, member, side="right") - 1
        size = int(mixture.sizes[group[0]])
        turns = self._earlier_turns(np.array([first // length, -(-stop // length)]) * length, group)
        passes = np.arange(int(turns[0]) // size, -(-int(turns[1]) // size), dtype=np.int64)
        places = np.full(len(passes), member[0] - mixture.starts[group[0]], np.int64)
        if self._shuffle and len(passes):
            keys = random_bits(self._seed, group, passes, "passes")
            places = self._permute.invert(places, group, keys)
        # Two passes of a small group may be in the same block.
        positions = np.sort(self._positions_of_turns(group, passes * size + places))
        return positions[(positions >= first) & (positions < stop)]

    def _positions_of_turns(self, group: np.ndarray, turns: np.ndarray) -> np.ndarray:
        """Returns the positions of some turns of a group, int64 [1]."""
        mixture = self._mixture
        length = self._mixture.block
        share = int(np.diff(mixture.edges)[group][0])
        candidates = turns * int(mixture.edges[-1]) // (share * length) + _NEAR[:, np.newaxis]
        candidates = np.maximum(candidates, 0)
        is_before = self._earlier_turns(candidates * length, group) <= turns
        blocks = np.where(is_before, candidates, 0).max(axis=0)
        starts = blocks * length
        slots = self._first_slot(starts, group) + turns - self._earlier_turns(starts, group)
        if self._shuffle:
            slots = invert(slots, length, random_bits(self._seed, 0, blocks, "mixture"))
        return starts + slots


def make_mixture(
    groups: np.ndarray,
    weights: Sequence[float],
    names: Sequence[str],
    excluded: np.ndarray = NO_EXAMPLES,
) -> Mixture:
    """Returns the mixture of groups in the ratio of their weights.

    Args:
        groups: The group of each example, integers [n], from 0.
        weights: The weight of each group, at least 0. Groups of weight 0 are not used.
        names: The names of the groups, for messages.
        excluded: The examples to leave out, int64 [k], ascending.

    Raises:
        DataError: A group with a weight has no examples, or its weight is too small.
    """
    used = np.ones(len(groups), bool)
    used[excluded] = False
    counts = np.bincount(groups[used], minlength=len(weights))
    kept = [number for number, weight in enumerate(weights) if weight]
    for number in kept:
        if not counts[number]:
            raise DataError(
                f"{names[number]}: has a weight, but no training examples", code="empty-data"
            )
    edges = _share_edges([weights[number] for number in kept])
    for place, number in enumerate(kept):
        if edges[place] == edges[place + 1]:
            raise DataError(
                f"{names[number]}: got the weight {weights[number]:g}, expected at least a "
                f"{_LARGEST_WHOLE:,}th of all weights",
                code="out-of-range",
            )
    order = np.argsort(groups, kind="stable")
    chosen = used & np.isin(groups, kept)
    return Mixture(order[chosen[order]].astype(np.int64), counts[kept].astype(np.int64), edges)


def _share_edges(weights: Sequence[float]) -> np.ndarray:
    # From the decimal digits, so that 0.7 and 0.3 are exactly seven and three tenths.
    exact = [Fraction(repr(float(weight))) for weight in weights]
    total = sum(exact)
    shares = [weight / total for weight in exact]
    denominator = math.lcm(*(share.denominator for share in shares))
    if denominator > _LARGEST_WHOLE:
        denominator = _LARGEST_WHOLE
    sums = [sum(shares[:count], Fraction(0)) for count in range(len(shares) + 1)]
    return np.array([round(share * denominator) for share in sums], np.int64)


def make_order(
    size: int,
    seed: int,
    shuffle: bool = True,
    excluded: np.ndarray = NO_EXAMPLES,
    mixture: Mixture | None = None,
    xp: Arrays = NUMPY,
) -> EpochOrder | MixtureOrder:
    """Returns the order of `size` examples without `excluded`, int64 [k], ascending.

    If `mixture` is given, it determines the order; it must not contain excluded examples. `xp` are
    the functions for the positions of the order.
    """
    if mixture is not None:
        return MixtureOrder(mixture, seed, shuffle, xp)
    return exclude_examples(ShuffledOrder(size, seed, shuffle), excluded, xp)
