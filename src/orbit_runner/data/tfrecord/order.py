"""The order of records: blocks in a keyed order, then records shuffled within windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from orbit_runner.data.sampling.keyed_random import random_bits
from orbit_runner.data.sampling.permutation import invert, permute
from orbit_runner.data.sampling.salts import BLOCKS, WINDOWS
from orbit_runner.data.table import stored_tensor


class BlockOrder:
    """The order in which an epoch reads the blocks.

    `records`, int64 [k], are the numbers of records of the blocks. If `shuffle` is true, each epoch
    has its own order; otherwise blocks are in stored order.
    """

    def __init__(self, records: np.ndarray, seed: int, *, shuffle: bool) -> None:
        self._records = stored_tensor(records.astype(np.int64))
        self._size, self._seed, self._shuffle = len(records), seed, shuffle

    def __call__(self, epoch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the block indices in reading order, and the place of each block's first record.

        Both are int64 [k]; places count the records of the epoch in that order. `epoch` is an int64
        scalar.
        """
        blocks = tf.range(self._size, dtype=tf.int64)
        if self._shuffle:
            key = random_bits(self._seed, tf.zeros([1], tf.int64), epoch, BLOCKS)
            blocks = permute(blocks, self._size, key)
        return blocks, tf.cumsum(tf.gather(self._records, blocks), exclusive=True)


@dataclasses.dataclass(frozen=True)
class WindowShuffle:
    """A permutation of an epoch that keeps each record in its window."""

    size: int  # Number of records.
    window: int  # Records per window, 1 to `size`; the last window has the rest.
    seed: int

    def __call__(self, places: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
        """Returns where in the sequence of blocks the record at each place comes from: int64 [b].

        `places` is int64 [b]; both are from 0 to size - 1. `epoch` is an int64 scalar.
        """
        return self._move_within_windows(permute, places, epoch)

    def invert(self, index: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
        """Returns the place of the record that comes from each index in the sequence of blocks."""
        return self._move_within_windows(invert, index, epoch)

    def _move_within_windows(
        self,
        permutation: Callable[[tf.Tensor, int, tf.Tensor], tf.Tensor],
        places: tf.Tensor,
        epoch: tf.Tensor,
    ) -> tf.Tensor:
        if self.window == 1:
            return places
        windows = places // self.window
        first = windows * self.window
        inner = places - first
        keys = random_bits(self.seed, windows, epoch, WINDOWS)
        moved = permutation(inner, min(self.window, self.size), keys)
        rest = self.size % self.window
        if rest:
            in_rest = first + rest == self.size
            of_rest = permutation(tf.where(in_rest, inner, 0), rest, keys)
            moved = tf.where(in_rest, of_rest, moved)
        return first + moved


class ExcludedRecords:
    """Records that are left out of the order of blocks and windows.

    `excluded`, int64 [k], are their indices, and `records`, int64 [blocks], are the numbers of
    records of the blocks.
    """

    def __init__(
        self, excluded: np.ndarray, records: np.ndarray, order: BlockOrder, shuffle: WindowShuffle
    ) -> None:
        self._count, self._blocks = len(excluded), len(records)
        self._order, self._shuffle = order, shuffle
        firsts = np.cumsum(records) - records
        block = np.searchsorted(firsts, excluded, side="right") - 1
        self._block, self._inner = stored_tensor(block), stored_tensor(excluded - firsts[block])

    def __len__(self) -> int:
        return self._count

    def places(self, epoch: tf.Tensor) -> tf.Tensor:
        """Returns their places in an epoch of all records, ascending: int64 [k]."""
        blocks, starts = self._order(epoch)
        start_of = tf.scatter_nd(blocks[:, tf.newaxis], starts, [self._blocks])
        index = tf.gather(start_of, self._block) + self._inner
        return tf.sort(self._shuffle.invert(index, epoch))
