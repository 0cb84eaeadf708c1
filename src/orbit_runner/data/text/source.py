"""Sentence pairs as token ids in flat arrays; NumPy only, to report a bad file early."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from orbit_runner.errors import DataError, format_count

PAD, EOS, UNKNOWN = 0, 1, 2


@dataclasses.dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of different lengths, stored one after the other."""

    values: np.ndarray  # The numbers of all rows, int32 [t].
    offsets: np.ndarray  # Start of each row, and the end of the last: int64 [n + 1].

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int] | np.ndarray]) -> Ragged:
        """Creates rows from n lists or arrays of integers."""
        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        values = np.concatenate([np.asarray(row, np.int32) for row in rows] or [_NONE])
        return cls(values, _offsets(lengths))

    @classmethod
    def concatenate(cls, parts: Sequence[Ragged]) -> Ragged:
        """Returns the rows of all parts, in order."""
        values = np.concatenate([part.values for part in parts] or [_NONE])
        return cls(values, _offsets(np.concatenate([part.lengths for part in parts] or [_NONE])))

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.offsets) - 1

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """The length of each row, int64 [n]."""
        return np.diff(self.offsets)

    def row(self, number: int) -> np.ndarray:
        """Returns one row, int32 [its length]."""
        return self.values[self.offsets[number] : self.offsets[number + 1]]

    def select(self, keep: np.ndarray) -> Ragged:
        """Returns the rows for which `keep`, bool [n], is true."""
        if keep.all():
            return self
        return Ragged(self.values[np.repeat(keep, self.lengths)], _offsets(self.lengths[keep]))

    def cut(self, max_length: int) -> Ragged:
        """Returns all rows; those longer than `max_length` are truncated and end with `EOS`."""
        long = self.lengths > max_length
        if not long.any():
            return self
        places = np.arange(len(self.values)) - np.repeat(self.offsets[:-1], self.lengths)
        rows = Ragged(self.values[places < max_length], _offsets(self.lengths.clip(0, max_length)))
        rows.values[rows.offsets[1:][long] - 1] = EOS
        return rows


@dataclasses.dataclass(frozen=True, eq=False)
class PairSource:
    """Sentences and their translations, in memory."""

    name: str
    sources: Ragged  # Token ids; each row ends with `EOS`.
    targets: Ragged  # Token ids; each row ends with `EOS`.
    vocab_size: int  # One more than the largest possible id.
    # The unchanged translations, if they are read from text for evaluation.
    references: tuple[str, ...] | None = None
    # The number of pairs that were left out, by reason.
    left_out: Mapping[str, int] = dataclasses.field(default_factory=dict)
    # Which pairs of the files these are, bool [lines]; None for all.
    kept: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.sources.size != self.targets.size or not self.sources.size:
            raise DataError(
                f"{self.name}: got {format_count(self.sources.size, 'source')} and "
                f"{format_count(self.targets.size, 'target')}, "
                "expected the same number of both, at least 1",
                code="data-mismatch",
            )

    @property
    def size(self) -> int:
        """The number of pairs."""
        return self.sources.size

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """The number of tokens of the longer side of each pair, including `EOS`: int64 [n]."""
        return np.maximum(self.sources.lengths, self.targets.lengths)


_NONE = np.zeros(0, np.int32)


def _offsets(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
