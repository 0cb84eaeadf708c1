"""Pairs of sentences as token ids in flat arrays; numpy only, to tell a bad file early."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from orbit_runner.errors import DataError

PAD, EOS, UNKNOWN = 0, 1, 2


@dataclasses.dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of different lengths, one behind the other.

    Attributes:
        values: All rows' numbers, int32 [t].
        offsets: Where each row starts, and the end of the last, int64 [n + 1].
    """

    values: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[Sequence[int] | np.ndarray]) -> Ragged:
        """Packs rows.

        Args:
            rows: n lists or arrays of integers.

        Returns:
            The same rows.
        """
        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        values = np.concatenate([np.asarray(row, np.int32) for row in rows] or [_NONE])
        return cls(values, _offsets(lengths))

    @classmethod
    def concatenate(cls, parts: Sequence[Ragged]) -> Ragged:
        """Puts the rows of several behind each other.

        Args:
            parts: Any number of them.

        Returns:
            All their rows, in order.
        """
        values = np.concatenate([part.values for part in parts] or [_NONE])
        return cls(values, _offsets(np.concatenate([part.lengths for part in parts] or [_NONE])))

    @property
    def size(self) -> int:
        """The number of rows, n."""
        return len(self.offsets) - 1

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """The length of each row, int64 [n]."""
        return np.diff(self.offsets)

    def row(self, number: int) -> np.ndarray:
        """Returns one row, int32 [its length].

        Args:
            number: Which, 0 to n - 1.
        """
        return self.values[self.offsets[number] : self.offsets[number + 1]]

    def select(self, keep: np.ndarray) -> Ragged:
        """Leaves out rows.

        Args:
            keep: Which rows stay, bool [n].

        Returns:
            Those rows, in the same order.
        """
        if keep.all():
            return self
        return Ragged(self.values[np.repeat(keep, self.lengths)], _offsets(self.lengths[keep]))

    def cut(self, max_length: int) -> Ragged:
        """Cuts long rows, so that they still end in `EOS`.

        Args:
            max_length: The most tokens of a row, `EOS` included.

        Returns:
            All rows, each of at most that length.
        """
        long = self.lengths > max_length
        if not long.any():
            return self
        places = np.arange(len(self.values)) - np.repeat(self.offsets[:-1], self.lengths)
        found = Ragged(self.values[places < max_length], _offsets(self.lengths.clip(0, max_length)))
        found.values[found.offsets[1:][long] - 1] = EOS
        return found


@dataclasses.dataclass(frozen=True, eq=False)
class PairSource:
    """Sentences and what they are translated to, in memory.

    Attributes:
        name: What messages call the set.
        sources: Ids of the sentences, each ended by `EOS`.
        targets: Ids of their translations, each ended by `EOS`.
        vocab_size: One more than the largest id there can be.
        references: The translations as they stand in the file, where there is text and it is for
            evaluation.
        left_out: How many pairs were left out, by the reason.
    """

    name: str
    sources: Ragged
    targets: Ragged
    vocab_size: int
    references: tuple[str, ...] | None = None
    left_out: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.sources.size != self.targets.size or not self.sources.size:
            raise DataError(
                f"{self.name}: got {self.sources.size} sources and {self.targets.size} targets, "
                "expected as many of both, at least 1"
            )

    @property
    def size(self) -> int:
        """The number of pairs, n."""
        return self.sources.size

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Tokens of the longer side of each pair, `EOS` included, int64 [n]."""
        return np.maximum(self.sources.lengths, self.targets.lengths)


_NONE = np.zeros(0, np.int32)


def _offsets(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
