"""The order of records in files: blocks in a keyed order, then records shuffled within windows.

stored    │ block 0 │ block 1 │ block 2 │ …      a block is read at once
blocks    │ block 2 │ block 0 │ block 1 │ …      another order in each epoch
windows   │ window    │ window    │ window │     of the records in that order; each is shuffled
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from orbit_runner.data.order.arrays import NUMPY, Array, Arrays
from orbit_runner.data.order.epochs import EpochOrder
from orbit_runner.data.order.keyed_random import random_bits
from orbit_runner.data.order.permutation import invert, permute


class RecordOrder(EpochOrder):
    """The order in which the pipeline of record files reads them, without reading any.

    `records`, int64 [k], are the numbers of records of the blocks, at least 1 each. Windows have
    `shuffle_buffer_size` records, and the last one has the rest. If it is 0 or 1, records are in
    stored order. `xp` are the functions for the result.
    """

    def __init__(
        self, records: np.ndarray, seed: int, shuffle_buffer_size: int, xp: Arrays = NUMPY
    ) -> None:
        self.size = int(records.sum())
        self.window = min(max(1, shuffle_buffer_size), self.size)
        self._seed = seed
        self._shuffles_blocks = shuffle_buffer_size > 1
        self._num_blocks = len(records)
        self._records = xp.store(records.astype(np.int64))
        self._firsts = xp.store(np.cumsum(records) - records)
        self._xp = xp

    def blocks(self, epoch: Array) -> tuple[Array, Array]:
        """Returns the block indices in reading order, and the place of each block's first record.

        Both are int64 [k]; places count the records of the epoch in that order. `epoch` is an int64
        scalar.
        """
        blocks = self._xp.arange(self._num_blocks)
        if self._shuffles_blocks:
            blocks = permute(blocks, self._num_blocks, random_bits(self._seed, 0, epoch, "block"))
        records = self._xp.take(self._records, blocks)
        return blocks, self._xp.cumsum(records) - records

    def unshuffled(self, places: Array, epoch: Array) -> Array:
        """Returns where in the sequence of blocks the record at each place comes from: int64 [b].

        `places` is int64 [b]; both are from 0 to size - 1. `epoch` is an int64 scalar.
        """
        return self._move_within_windows(permute, places, epoch)

    def _move_within_windows(
        self, permutation: Callable[[Array, int, Array], Array], places: Array, epoch: Array
    ) -> Array:
        if self.window == 1:
            return places
        windows = places // self.window
        first = windows * self.window
        inner = places - first
        keys = random_bits(self._seed, windows, epoch, "window")
        moved = permutation(inner, self.window, keys)
        rest = self.size % self.window
        if rest:
            in_rest = first + rest == self.size
            of_rest = permutation(self._xp.where(in_rest, inner, 0), rest, keys)
            moved = self._xp.where(in_rest, of_rest, moved)
        return first + moved

    def examples(self, places: Array, epochs: Array) -> Array:
        """Returns the records at places of epochs."""
        return self._xp.map_epochs(self._examples_of_epoch, places, epochs)

    def places(self, examples: Array, epochs: Array) -> Array:
        """Returns the places of records in epochs."""
        return self._xp.map_epochs(self.places_of_epoch, examples, epochs)

    def _examples_of_epoch(self, places: Array, epoch: Array) -> Array:
        xp = self._xp
        index = self.unshuffled(places, epoch)
        blocks, starts = self.blocks(epoch)
        turns = xp.count_at_most(starts, index) - 1
        firsts = xp.take(self._firsts, xp.take(blocks, turns))
        return firsts + index - xp.take(starts, turns)

    def places_of_epoch(self, examples: Array, epoch: Array) -> Array:
        """Returns the places of records in one epoch, an int64 scalar."""
        xp = self._xp
        blocks, starts = self.blocks(epoch)
        numbers = xp.count_at_most(self._firsts, examples) - 1
        own_starts = xp.take(xp.take(starts, xp.invert_permutation(blocks)), numbers)
        index = own_starts + examples - xp.take(self._firsts, numbers)
        return self._move_within_windows(invert, index, epoch)
