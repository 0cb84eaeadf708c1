"""The order of records in files: blocks in a keyed order, then records shuffled within windows.

stored    │ block 0 │ block 1 │ block 2 │ …      a block is read at once
blocks    │ block 2 │ block 0 │ block 1 │ …      another order in each epoch
windows   │ window    │ window    │ window │     of the records in that order; each is shuffled
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from orbit_runner.data.order.arrays import Array, Arrays
from orbit_runner.data.order.epochs import EpochOrder
from orbit_runner.data.order.keyed_random import BLOCKS, WINDOWS, random_bits
from orbit_runner.data.order.np_arrays import NUMPY, namespace_of
from orbit_runner.data.order.permutation import invert, permute


class BlockOrder:
    """The order in which an epoch reads the blocks.

    `records`, int64 [k], are the numbers of records of the blocks. If `shuffle` is true, each epoch
    has its own order; otherwise blocks are in stored order. `xp` are the functions for the result.
    """

    def __init__(
        self, records: np.ndarray, seed: int, *, shuffle: bool, xp: Arrays = NUMPY
    ) -> None:
        self._records = xp.store(records.astype(np.int64))
        self._size = len(records)
        self._seed = seed
        self._shuffle = shuffle
        self._xp = xp

    def __call__(self, epoch: Array) -> tuple[Array, Array]:
        """Returns the block indices in reading order, and the place of each block's first record.

        Both are int64 [k]; places count the records of the epoch in that order. `epoch` is an int64
        scalar.
        """
        blocks = self._xp.arange(self._size)
        if self._shuffle:
            blocks = permute(blocks, self._size, random_bits(self._seed, 0, epoch, BLOCKS))
        records = self._xp.take(self._records, blocks)
        return blocks, self._xp.cumsum(records) - records


@dataclasses.dataclass(frozen=True)
class WindowShuffle:
    """A permutation of an epoch that keeps each record in its window."""

    size: int  # Number of records.
    window: int  # Records per window, 1 to `size`; the last window has the rest.
    seed: int

    def __call__(self, places: Array, epoch: Array) -> Array:
        """Returns where in the sequence of blocks the record at each place comes from: int64 [b].

        `places` is int64 [b]; both are from 0 to size - 1. `epoch` is an int64 scalar.
        """
        return self._move_within_windows(permute, places, epoch)

    def invert(self, index: Array, epoch: Array) -> Array:
        """Returns the place of the record that comes from each index in the sequence of blocks."""
        return self._move_within_windows(invert, index, epoch)

    def _move_within_windows(
        self, permutation: Callable[[Array, int, Array], Array], places: Array, epoch: Array
    ) -> Array:
        if self.window == 1:
            return places
        xp = namespace_of(places)
        windows = places // self.window
        first = windows * self.window
        inner = places - first
        keys = random_bits(self.seed, windows, epoch, WINDOWS)
        moved = permutation(inner, self.window, keys)
        rest = self.size % self.window
        if rest:
            in_rest = first + rest == self.size
            of_rest = permutation(xp.where(in_rest, inner, 0), rest, keys)
            moved = xp.where(in_rest, of_rest, moved)
        return first + moved


class RecordOrder(EpochOrder):
    """The order in which the pipeline of record files reads them, without reading any; NumPy only.

    `records`, int64 [k], are the numbers of records of the blocks. If `shuffle_buffer_size` is 0 or
    1, records are in stored order.

    Where a block starts follows from its position and the blocks before it that have fewer records
    than others, so that the positions of all others need not be computed.
    """

    def __init__(self, records: np.ndarray, seed: int, shuffle_buffer_size: int) -> None:
        self.size = int(records.sum())
        self._seed = seed
        self._shuffle = shuffle_buffer_size > 1
        self._windows = WindowShuffle(self.size, min(max(1, shuffle_buffer_size), self.size), seed)
        self._blocks = len(records)
        self._full = int(records.max())
        self._firsts = np.cumsum(records) - records
        self._short = np.flatnonzero(records < self._full)
        self._missing = self._full - records[self._short]

    def examples(self, places: np.ndarray, epochs: np.ndarray) -> np.ndarray:
        """Returns the records at places of epochs."""
        return NUMPY.map_epochs(self._examples_of_epoch, places, epochs)

    def places(self, examples: np.ndarray, epochs: np.ndarray) -> np.ndarray:
        """Returns the places of records in epochs."""
        return NUMPY.map_epochs(self._places_of_epoch, examples, epochs)

    def _examples_of_epoch(self, places: np.ndarray, epoch: int) -> np.ndarray:
        index = self._windows(places, epoch)
        positions, missing = self._short_blocks(epoch)
        # After each short block: its position plus 1, and the records up to there.
        after = np.append(0, positions + 1)
        starts = after * self._full - missing
        part = np.searchsorted(starts[1:], index, side="right")
        more = index - starts[part]
        blocks = after[part] + more // self._full
        if self._shuffle:
            blocks = permute(blocks, self._blocks, random_bits(self._seed, 0, epoch, BLOCKS))
        return self._firsts[blocks] + more % self._full

    def _places_of_epoch(self, examples: np.ndarray, epoch: int) -> np.ndarray:
        blocks = np.searchsorted(self._firsts, examples, side="right") - 1
        own = self._block_positions(blocks, epoch)
        positions, missing = self._short_blocks(epoch)
        before = missing[np.searchsorted(positions, own)]
        index = own * self._full - before + (examples - self._firsts[blocks])
        return self._windows.invert(index, epoch)

    def _short_blocks(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the positions of the k short blocks in an epoch, ascending: int64 [k].

        And how many records fewer the first 0 to k of them have than others: int64 [k + 1].
        """
        positions = self._block_positions(self._short, epoch)
        order = np.argsort(positions, kind="stable")
        return positions[order], np.append(0, np.cumsum(self._missing[order]))

    def _block_positions(self, blocks: np.ndarray, epoch: int) -> np.ndarray:
        """Returns the position of each block in an epoch, int64 [b]."""
        if not self._shuffle:
            return blocks
        return invert(blocks, self._blocks, random_bits(self._seed, 0, epoch, BLOCKS))
