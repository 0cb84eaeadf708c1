"""Mixtures of groups of examples, such as sources or classes, in fixed shares; no TensorFlow.

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
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from orbit_runner.data.sampling.numpy_exclusion import NO_EXAMPLES
from orbit_runner.errors import DataError

# Positions times this must be below 2^63, which is enough for 5·10^11 examples.
_LARGEST_WHOLE = 2**24


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

    def count_below_edge(self, position: Any, edge: Any) -> Any:
        """Returns how many positions before `position`, the start of a block, are below `edge`."""
        return position * edge // int(self.edges[-1])

    def turns(
        self, starts: Any, slots: Any, edges: Any, take: Callable[..., Any], where: Any
    ) -> tuple[Any, Any]:
        """Returns the group at each slot of a block, and the turn of the group, from 0.

        Args:
            starts: The first position of each block, int64 [b].
            slots: The slots of the blocks, int64 [b]: those of group 0 come first.
            edges: `edges` as an array or a tensor.
            take: `np.take` or `tf.gather`.
            where: `np.where` or `tf.where`.
        """

        def first_slot(group: Any) -> Any:
            edge = take(edges, group)
            return self.count_below_edge(starts + self.block, edge) - self.count_below_edge(
                starts, edge
            )

        groups, last = slots * 0, len(self.sizes) - 1
        step = 1 << max(0, last.bit_length() - 1)
        while step:  # A binary search for the last group that starts at or before the slot.
            higher = where(groups + step > last, groups, groups + step)
            groups = where(first_slot(higher) <= slots, higher, groups)
            step //= 2
        earlier = self.count_below_edge(starts, take(edges, groups + 1)) - self.count_below_edge(
            starts, take(edges, groups)
        )
        return groups, earlier + slots - first_slot(groups)


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
            raise DataError(f"{names[number]}: has a weight, but no training examples")
    edges = _share_edges([weights[number] for number in kept])
    for place, number in enumerate(kept):
        if edges[place] == edges[place + 1]:
            raise DataError(
                f"{names[number]}: got the weight {weights[number]:g}, expected at least a "
                f"{_LARGEST_WHOLE:,}th of all weights"
            )
    order = np.argsort(groups, kind="stable")
    chosen = used & np.isin(groups, kept)
    return Mixture(order[chosen[order]].astype(np.int64), counts[kept].astype(np.int64), edges)


def _share_edges(weights: Sequence[float]) -> np.ndarray:
    # From the decimal digits, so that 0.7 and 0.3 are exactly seven and three tenths.
    exact = [Fraction(repr(float(weight))) for weight in weights]
    total = sum(exact)
    shares = [weight / total for weight in exact]
    whole = math.lcm(*(share.denominator for share in shares))
    if whole > _LARGEST_WHOLE:
        whole = _LARGEST_WHOLE
    sums = [sum(shares[:count], Fraction(0)) for count in range(len(shares) + 1)]
    return np.array([round(one * whole) for one in sums], np.int64)
