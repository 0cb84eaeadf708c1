"""The order of the examples of an epoch, and its inverse. Does not import TensorFlow."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np

from orbit_runner.data.sampling.numpy_permutation import invert, permute
from orbit_runner.data.sampling.numpy_random import random_bits
from orbit_runner.data.sampling.salts import BLOCKS, EXAMPLES, WINDOWS


class Sequence(Protocol):
    """The order of examples in each epoch."""

    @property
    def size(self) -> int:
        """The number of examples of an epoch."""
        ...

    def examples(self, places: np.ndarray, epoch: int) -> np.ndarray:
        """Returns the examples at places of an epoch, int64 [b], from 0 to size - 1."""
        ...

    def places(self, example: int, epochs: np.ndarray) -> np.ndarray:
        """Returns the place of an example in each of several epochs, int64 [k].

        -1 if it is left out.
        """
        ...

    def epoch_places(self, examples: np.ndarray, epoch: int) -> np.ndarray:
        """Returns the places of examples in an epoch; both are int64 [k]."""
        ...


@dataclasses.dataclass(frozen=True)
class ShuffledSequence:
    """The order of `IndexSampler`: a permutation of all examples for each epoch."""

    size: int
    seed: int
    shuffle: bool = True

    def examples(self, places: np.ndarray, epoch: int) -> np.ndarray:
        """Returns the examples at places of an epoch."""
        return permute(places, self.size, self._keys(epoch)) if self.shuffle else places

    def places(self, example: int, epochs: np.ndarray) -> np.ndarray:
        """Returns the place of an example in each epoch."""
        examples = np.full(len(epochs), example, np.int64)
        return invert(examples, self.size, self._keys(epochs)) if self.shuffle else examples

    def epoch_places(self, examples: np.ndarray, epoch: int) -> np.ndarray:
        """Returns the places of examples in an epoch."""
        return invert(examples, self.size, self._keys(epoch)) if self.shuffle else examples

    def _keys(self, epochs: np.ndarray | int) -> np.ndarray:
        return random_bits(self.seed, 0, epochs, EXAMPLES)


class RecordSequence:
    """The order of `Reader`: blocks in a keyed order, then records shuffled within windows.

    `records`, int64 [k], are the numbers of records of the blocks. If `shuffle_buffer_size` is 0 or
    1, records are in stored order.

    Where a block starts follows from its position and the blocks before it that have fewer records
    than others, so that the positions of all others need not be computed.
    """

    def __init__(self, records: np.ndarray, seed: int, shuffle_buffer_size: int) -> None:
        self.size = int(records.sum())
        self._seed, self._shuffle = seed, shuffle_buffer_size > 1
        self._window = min(max(1, shuffle_buffer_size), self.size)
        self._blocks, self._full = len(records), int(records.max())
        self._firsts = np.cumsum(records) - records
        self._short = np.flatnonzero(records < self._full)
        self._missing = self._full - records[self._short]

    def examples(self, places: np.ndarray, epoch: int) -> np.ndarray:
        """Returns the examples at places of an epoch."""
        index = self._shuffle_windows(places, epoch)
        positions, order = self._short_positions(np.array([epoch]))
        # After each short block: its position plus 1, and the records up to there.
        missing = np.cumsum(self._missing[order[0]])
        after = np.append(0, positions[0] + 1)
        starts = after * self._full - np.append(0, missing)
        part = np.searchsorted(starts[1:], index, side="right")
        more = index - starts[part]
        blocks = self._block_indices(after[part] + more // self._full, epoch)
        return self._firsts[blocks] + more % self._full

    def places(self, example: int, epochs: np.ndarray) -> np.ndarray:
        """Returns the place of an example in each epoch."""
        block = int(np.searchsorted(self._firsts, example, side="right")) - 1
        positions, order = self._short_positions(epochs)
        own = self._block_positions(np.array([block]), epochs)[:, 0]
        before = np.where(positions < own[:, np.newaxis], self._missing[order], 0).sum(axis=1)
        index = own * self._full - before + (example - self._firsts[block])
        return self._unshuffle_windows(index, epochs)

    def epoch_places(self, examples: np.ndarray, epoch: int) -> np.ndarray:
        """Returns the places of examples in an epoch."""
        blocks = np.searchsorted(self._firsts, examples, side="right") - 1
        positions, order = self._short_positions(np.array([epoch]))
        own = self._block_positions(blocks, np.array([epoch]))[0]
        missing = np.append(0, np.cumsum(self._missing[order[0]]))
        before = missing[np.searchsorted(positions[0], own)]
        index = own * self._full - before + (examples - self._firsts[blocks])
        return self._unshuffle_windows(index, epoch)

    def _short_positions(self, epochs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the positions of the short blocks per epoch, ascending, and their indices."""
        found = self._block_positions(self._short, epochs)
        order = np.argsort(found, axis=1, kind="stable")
        return np.take_along_axis(found, order, 1), order

    def _block_positions(self, blocks: np.ndarray, epochs: np.ndarray) -> np.ndarray:
        """Returns the position of each block in each epoch, int64 [epochs, blocks]."""
        shape = len(epochs), len(blocks)
        if not self._shuffle:
            return np.broadcast_to(blocks, shape)
        keys = random_bits(self._seed, 0, epochs, BLOCKS)[:, np.newaxis]
        return invert(np.broadcast_to(blocks, shape), self._blocks, keys)

    def _block_indices(self, positions: np.ndarray, epoch: int) -> np.ndarray:
        if not self._shuffle:
            return positions
        return permute(positions, self._blocks, random_bits(self._seed, 0, epoch, BLOCKS))

    def _shuffle_windows(self, places: np.ndarray, epoch: int) -> np.ndarray:
        """Returns where in the sequence of blocks the record at each place comes from."""
        if self._window == 1:
            return places
        first, sizes, keys = self._windows(places, epoch)
        found = np.empty_like(places)
        for size in np.unique(sizes):
            mask = sizes == size
            found[mask] = permute((places - first)[mask], int(size), keys[mask])
        return first + found

    def _unshuffle_windows(self, index: np.ndarray, epochs: np.ndarray | int) -> np.ndarray:
        """Returns the place of the record that comes from each index of the sequence of blocks."""
        if self._window == 1:
            return index
        first, sizes, keys = self._windows(index, epochs)
        found = np.empty_like(index)
        for size in np.unique(sizes):
            mask = sizes == size
            found[mask] = invert((index - first)[mask], int(size), keys[mask])
        return first + found

    def _windows(
        self, places: np.ndarray, epochs: np.ndarray | int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the first place, the size and the key of the window of each place."""
        windows = places // self._window
        first = windows * self._window
        sizes = np.minimum(self._window, self.size - first)
        return first, sizes, random_bits(self._seed, windows, epochs, WINDOWS)
