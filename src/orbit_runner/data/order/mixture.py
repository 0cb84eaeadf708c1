"""Which examples of a mixture are in the batch of a step, and the inverse; no TensorFlow."""

from __future__ import annotations

import numpy as np

from orbit_runner.data.order.step_order import Occurrences, StepRows
from orbit_runner.data.sampling.mixture import Mixture
from orbit_runner.data.sampling.numpy_permutation import (
    invert,
    invert_segments,
    permute,
    permute_segments,
)
from orbit_runner.data.sampling.numpy_random import random_bits
from orbit_runner.data.sampling.salts import MIXTURE, PASSES

# The rounding of shares moves a turn by at most one block from where its share alone would put it.
_NEAR = np.arange(-2, 3)


class MixtureOrder:
    """The order of `MixtureSampler`.

    An epoch has as many examples as the mixture; `StepRows.epochs` are the passes of the groups,
    and `StepRows.places` the places in these passes.
    """

    def __init__(self, mixture: Mixture, batch_size: int, seed: int, *, shuffle: bool) -> None:
        self.size, self.steps_per_epoch = mixture.size, mixture.size / batch_size
        self._mixture, self._batch_size = mixture, batch_size
        self._seed, self._shuffle = seed, shuffle

    def rows(self, step: int) -> StepRows:
        """Returns the rows of the global batch of a step."""
        mixture, length = self._mixture, self._mixture.block
        positions = step * self._batch_size + np.arange(self._batch_size, dtype=np.int64)
        blocks = positions // length
        slots = positions - blocks * length
        if self._shuffle:
            slots = permute(slots, length, random_bits(self._seed, 0, blocks, MIXTURE))
        groups, turns = mixture.turns(blocks * length, slots, mixture.edges, np.take, np.where)
        passes = turns // mixture.sizes[groups]
        places = turns - passes * mixture.sizes[groups]
        inner = places
        if self._shuffle:
            keys = random_bits(self._seed, groups, passes, PASSES)
            inner = permute_segments(places, mixture.sizes, groups, keys)
        return StepRows(mixture.members[mixture.starts[groups] + inner], passes, places)

    def occurrences(self, example: int, first: int, stop: int) -> Occurrences:
        """Returns the occurrences of an example in the steps from `first` to `stop` - 1."""
        mixture = self._mixture
        member = np.flatnonzero(mixture.members == example)
        ends = self._pass_range(member, first, stop)
        passes = np.arange(*ends, dtype=np.int64)
        group = np.searchsorted(mixture.starts, member, side="right") - 1
        places = np.full(len(passes), (member - mixture.starts[group]).sum(), np.int64)
        if self._shuffle and len(passes):
            keys = random_bits(self._seed, group, passes, PASSES)
            places = invert_segments(places, mixture.sizes, group, keys)
        positions = self._positions(group, passes * mixture.sizes[group].sum() + places)
        # Two passes of a small group may be in the same block.
        inorder = np.argsort(positions, kind="stable")
        positions, passes, places = positions[inorder], passes[inorder], places[inorder]
        steps = positions // self._batch_size
        rows = positions - steps * self._batch_size
        return Occurrences(steps, rows, passes, places).select_steps(first, stop)

    def _pass_range(self, member: np.ndarray, first: int, stop: int) -> tuple[int, int]:
        """Returns the first pass of an example's group that may be in some steps, and the end."""
        if not len(member) or stop <= first:
            return 0, 0
        group = int(np.searchsorted(self._mixture.starts, member[0], side="right")) - 1
        blocks = (first * self._batch_size // self._mixture.block,
                  -(-stop * self._batch_size // self._mixture.block))  # fmt: skip
        turns = self._count_earlier_turns(group, np.array(blocks, np.int64))
        size = int(self._mixture.sizes[group])
        return int(turns[0]) // size, -(-int(turns[1]) // size)

    def _count_earlier_turns(self, group: np.ndarray | int, blocks: np.ndarray) -> np.ndarray:
        """Returns the number of turns that a group has before some blocks."""
        mixture, starts = self._mixture, blocks * self._mixture.block
        upper, lower = mixture.edges[group + 1], mixture.edges[group]
        found: np.ndarray = mixture.count_below_edge(starts, upper) - mixture.count_below_edge(
            starts, lower
        )
        return found

    def _positions(self, group: np.ndarray, turns: np.ndarray) -> np.ndarray:
        """Returns the positions of some turns of a group; `group` has one item, or none."""
        if not len(turns):
            return turns
        mixture, length = self._mixture, self._mixture.block
        share = int(np.diff(mixture.edges)[group][0])
        near = turns * int(mixture.edges[-1]) // (share * length) + _NEAR[:, np.newaxis]
        near = np.maximum(near, 0)
        blocks = np.where(self._count_earlier_turns(group, near) <= turns, near, 0).max(axis=0)
        starts, edge = blocks * length, mixture.edges[group]
        before = mixture.count_below_edge(starts + length, edge) - mixture.count_below_edge(
            starts, edge
        )
        slots = before + turns - self._count_earlier_turns(group, blocks)
        if self._shuffle:
            slots = invert(slots, length, random_bits(self._seed, 0, blocks, MIXTURE))
        return starts + slots
