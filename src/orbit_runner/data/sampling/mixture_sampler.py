"""Which example of a mixture is at which position of the infinite sequence that training reads."""

from __future__ import annotations

import tensorflow as tf

from orbit_runner.data.sampling.keyed_random import random_bits
from orbit_runner.data.sampling.mixture import Mixture
from orbit_runner.data.sampling.permutation import permute
from orbit_runner.data.sampling.salts import MIXTURE, PASSES
from orbit_runner.data.sampling.segment_permutation import SegmentPermutation
from orbit_runner.data.table import stored_tensor


class MixtureSampler:
    """The order of the examples of a mixture as a function of (seed, position).

    If `shuffle` is False, each group keeps its stored order, and the positions of a block are
    divided in the order of the groups.
    """

    def __init__(self, mixture: Mixture, seed: int, shuffle: bool = True) -> None:
        self.size = mixture.size
        self._mixture, self._seed, self._shuffle = mixture, seed, shuffle
        self._edges, self._members = stored_tensor(mixture.edges), stored_tensor(mixture.members)
        self._starts, self._sizes = stored_tensor(mixture.starts), stored_tensor(mixture.sizes)
        self._permute = SegmentPermutation(mixture.sizes)

    def __call__(self, positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns example indices, int64 [b], and the passes of their groups, int64 [b].

        `positions` is int64 [b].
        """
        length = self._mixture.block
        blocks = positions // length
        slots = positions - blocks * length
        if self._shuffle:
            keys = random_bits(self._seed, tf.zeros_like(blocks), blocks, MIXTURE)
            slots = permute(slots, length, keys)
        groups, turns = self._mixture.turns(
            blocks * length, slots, self._edges, tf.gather, tf.where
        )
        sizes = tf.gather(self._sizes, groups)
        passes = turns // sizes
        places = turns - passes * sizes
        if self._shuffle:
            keys = random_bits(self._seed, groups, passes, PASSES)
            places = self._permute(places, groups, keys)
        return tf.gather(self._members, tf.gather(self._starts, groups) + places), passes
