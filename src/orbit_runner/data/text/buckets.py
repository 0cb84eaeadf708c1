"""Batches of about the same number of tokens, planned once for all epochs; NumPy only."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from orbit_runner.data.text.source import PairSource
from orbit_runner.errors import DataError

# From tensor2tensor and Model Garden (official/nlp/data/wmt_dataloader.py).
_FIRST_WIDTH = 8
_GROWTH = 1.1


@dataclasses.dataclass(frozen=True, eq=False)
class BatchPlan:
    """How the pairs of an epoch are divided into batches, which is the same for all epochs.

    Pairs are arranged in a sequence, bucket after bucket, from the shortest to the longest. An
    epoch shuffles the pairs of each bucket, cuts the sequence at the same positions as every other
    epoch, and shuffles the batches. So each pair is in one batch of each epoch, and any batch can
    be computed independently.

    A batch may include pairs of several buckets, and is as wide as its longest sentence.
    """

    # Pair indices, bucket after bucket, -1 for a pair that is left out: int64 [n].
    members: np.ndarray
    bucket_offsets: np.ndarray  # First position of each bucket, and the end: int64 [buckets + 1].
    batch_starts: np.ndarray  # First position of each batch: int64 [steps].
    # Rows of each batch, multiples of `rows_multiple`: int64 [steps]. They may extend beyond the
    # last pair of the batch; the additional rows are padding.
    batch_rows: np.ndarray

    @functools.cached_property
    def batch_ends(self) -> np.ndarray:
        """The position after the last pair of each batch: int64 [steps]."""
        return np.append(self.batch_starts[1:], len(self.members))

    @functools.cached_property
    def is_partial(self) -> bool:
        """Whether some pairs are left out."""
        return bool((self.members < 0).any())

    def exclude(self, excluded: np.ndarray) -> BatchPlan:
        """Returns the plan without some pairs, int64 [k]. Their rows stay empty.

        All other rows keep their positions. If the pairs were removed before the batches are cut,
        every batch would change, even in steps before the pairs are first used.
        """
        if not len(excluded):
            return self
        members = np.where(np.isin(self.members, excluded), np.int64(-1), self.members)
        return dataclasses.replace(self, members=members)

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches per epoch."""
        return len(self.batch_starts)


def plan_batches(source: PairSource, *, batch_tokens: int, rows_multiple: int = 8) -> BatchPlan:
    """Returns a plan of batches of pairs of about the same length.

    `batch_tokens` is the maximum number of tokens per side of a batch, including padding. The
    number of rows of each batch is a multiple of `rows_multiple`, which must be a multiple of the
    number of replicas; apart from that, batches do not depend on that number. Raises DataError with
    the field `batch_tokens` if the longest pair does not fit.
    """
    lengths = source.lengths
    widths = bucket_widths(int(lengths.max()))
    count_batch_rows(
        batch_tokens=batch_tokens, max_length=int(widths[-1]), rows_multiple=rows_multiple
    )
    rows = batch_tokens // widths // rows_multiple * rows_multiple
    buckets = np.searchsorted(widths, lengths)
    counts = np.bincount(buckets, minlength=len(widths))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    members = np.argsort(buckets, kind="stable").astype(np.int64)
    starts, taken = _cut_batches(offsets, rows, rows_multiple)
    return BatchPlan(members, offsets, starts, taken)


def bucket_widths(longest: int) -> np.ndarray:
    """Returns the maximum tokens of a sentence in each bucket: int64 [buckets], ascending.

    Each is about a tenth larger than the one before. The last is `longest`.
    """
    widths = []
    width = _FIRST_WIDTH
    while width < longest:
        widths.append(width)
        width = max(width + 1, int(width * _GROWTH))
    return np.array([*widths, longest], np.int64)


def count_batch_rows(*, batch_tokens: int, max_length: int, rows_multiple: int = 8) -> int:
    """Returns the number of sentences per batch, a multiple of `rows_multiple`, if it is fixed.

    `batch_tokens` is the maximum number of tokens per side of a batch, including padding. Raises
    DataError with the field `batch_tokens` if `rows_multiple` sentences of `max_length` tokens do
    not fit.
    """
    rows = batch_tokens // max_length // rows_multiple * rows_multiple
    if not rows:
        raise DataError(
            f"got {batch_tokens:,} tokens per batch, expected at least "
            f"{max_length * rows_multiple:,}: {rows_multiple} sentences "
            f"(batch_rows_multiple) of up to {max_length} tokens (the longest sentence)",
            field="batch_tokens",
            code="out-of-range",
        )
    return rows


def _cut_batches(
    offsets: np.ndarray, rows: np.ndarray, multiple: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first position and the rows of each batch.

    A batch may include pairs of the following buckets if they fit.
    """
    ends = offsets[1:].copy()
    # The number of rows is rounded up; the additional rows are padding.
    ends[-1] += -ends[-1] % multiple
    starts = []
    taken = []
    start = 0
    while start < ends[-1]:
        # A batch whose last pair is in bucket j must fit at the width of that bucket.
        fitting = np.minimum(rows, ends - start)
        count = int(fitting.max()) // multiple * multiple
        starts.append(start)
        taken.append(count)
        start += count
    return np.array(starts, np.int64), np.array(taken, np.int64)
