"""Sentence pairs as token ids in flat arrays; NumPy only, to report a bad file early."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from orbit_runner.errors import DataError, format_count
from orbit_runner.utils.log import note

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


def limit_lengths(source: PairSource, max_length: int, *, is_training: bool) -> PairSource:
    """Returns the pairs with at most `max_length` tokens per side, including `EOS`.

    In training, longer pairs and pairs with a blank side, which is `EOS` alone, are left out. In
    evaluation, each pair counts in the score: longer sentences are truncated, and the references
    are kept whole. The numbers of these pairs are reported on stderr. Raises DataError with the
    field `max_length` if no pair is left.
    """
    if max_length < 2:
        raise DataError(
            f"got {max_length}, expected at least 2 tokens", field="max_length", code="out-of-range"
        )
    long = source.lengths > max_length
    if not is_training:
        _report_counts(source, {f"longer than {max_length} tokens": int(long.sum())}, "truncated")
        sources, targets = source.sources.cut(max_length), source.targets.cut(max_length)
        return PairSource(source.name, sources, targets, source.vocab_size, source.references)
    blank = np.minimum(source.sources.lengths, source.targets.lengths) < 2
    keep = ~(blank | long)
    left_out = {
        "with an empty side": int(blank.sum()),
        f"longer than {max_length} tokens": int((long & ~blank).sum()),
    }
    if not keep.any():
        raise DataError(
            f"{source.name}: no pair is left: {_format_counts(source, left_out)}",
            field="max_length",
            code="empty-data",
        )
    _report_counts(source, left_out, "skipped")
    return _select_pairs(source, keep, left_out)


def _select_pairs(source: PairSource, keep: np.ndarray, left_out: dict[str, int]) -> PairSource:
    sources, targets = source.sources.select(keep), source.targets.select(keep)
    return PairSource(
        source.name, sources, targets, source.vocab_size, left_out=left_out, kept=keep
    )


def _report_counts(source: PairSource, counts: dict[str, int], what: str) -> None:
    if any(counts.values()):
        note(f"{source.name}: {what}: {_format_counts(source, counts)}")


def _format_counts(source: PairSource, counts: dict[str, int]) -> str:
    some = [f"{count:,} {reason}" for reason, count in counts.items() if count]
    return f"{' and '.join(some)}, out of {source.size:,} pairs"


_NONE = np.zeros(0, np.int32)


def _offsets(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
