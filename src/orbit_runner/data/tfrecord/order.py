"""The order of records: blocks in a keyed order, then records within windows of that row."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from orbit_runner.data.sampling.keyed_random import random_bits
from orbit_runner.data.sampling.permutation import permute
from orbit_runner.data.table import on_cpu

_BLOCK_SALT, _WINDOW_SALT = 0x626C6F636B, 0x77696E646F77


class BlockOrder:
    """The row of blocks that an epoch reads one after the other."""

    def __init__(self, records: np.ndarray, seed: int, *, shuffle: bool) -> None:
        """Takes the sizes of the blocks.

        Args:
            records: Records of each block, int64 [k].
            seed: Any integer.
            shuffle: Whether each epoch has a row of its own; as stored otherwise.
        """
        self._records = on_cpu(records.astype(np.int64))
        self._size, self._seed, self._shuffle = len(records), seed, shuffle

    def __call__(self, epoch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Lays out an epoch.

        Args:
            epoch: int64 scalar.

        Returns:
            Numbers of the blocks in the order in which they are read, and the place of each one's
            first record in the row of all records, both int64 [k].
        """
        blocks = tf.range(self._size, dtype=tf.int64)
        if self._shuffle:
            key = random_bits(self._seed, tf.zeros([1], tf.int64), epoch, _BLOCK_SALT)
            blocks = permute(blocks, self._size, key)
        return blocks, tf.cumsum(tf.gather(self._records, blocks), exclusive=True)


@dataclasses.dataclass(frozen=True)
class WindowShuffle:
    """A permutation of an epoch that moves no record out of its window.

    Attributes:
        size: Number of records, n.
        window: Records of a window, 1 to n; the last window has the rest.
        seed: Any integer.
    """

    size: int
    window: int
    seed: int

    def __call__(self, places: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
        """Looks up where in the row of blocks the record at each place comes from.

        Args:
            places: int64 [b], 0 to n - 1.
            epoch: int64 scalar.

        Returns:
            int64 [b], 0 to n - 1.
        """
        if self.window == 1:
            return places
        windows = places // self.window
        first = windows * self.window
        inner = places - first
        keys = random_bits(self.seed, windows, epoch, _WINDOW_SALT)
        moved = permute(inner, min(self.window, self.size), keys)
        rest = self.size % self.window
        if rest:
            in_rest = first + rest == self.size
            of_rest = permute(tf.where(in_rest, inner, 0), rest, keys)
            moved = tf.where(in_rest, of_rest, moved)
        return first + moved
