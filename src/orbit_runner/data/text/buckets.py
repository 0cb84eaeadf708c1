"""Batches of about as many tokens each, laid out once for all epochs; numpy only."""

from __future__ import annotations

import dataclasses

import numpy as np

from orbit_runner.data.text.source import PairSource
from orbit_runner.errors import DataError

# Of tensor2tensor and Model Garden (official/nlp/data/wmt_dataloader.py).
_FIRST_WIDTH, _GROWTH = 8, 1.1


@dataclasses.dataclass(frozen=True, eq=False)
class BatchPlan:
    """How the pairs of an epoch are cut into batches: the same for all epochs.

    Pairs stand in a row, bucket after bucket, from the shortest to the longest. An epoch shuffles
    the pairs of each bucket, cuts the row at the same places as every other, and shuffles the
    batches. So each pair is in one batch of each epoch, and any batch can be computed by itself.

    Attributes:
        members: Numbers of the pairs, bucket after bucket, int64 [n].
        bucket_offsets: Where each bucket starts in that row, and the end, int64 [buckets + 1].
        batch_starts: Where each batch starts in that row, int64 [steps].
        batch_rows: Rows of each batch, int64 [steps]: multiples of `rows_multiple`. The last one
            may reach beyond the end of the row of pairs; the rows there are padding.
        rows_multiple: What all numbers of rows are multiples of.
    """

    members: np.ndarray
    bucket_offsets: np.ndarray
    batch_starts: np.ndarray
    batch_rows: np.ndarray
    rows_multiple: int

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches of an epoch."""
        return len(self.batch_starts)


def plan_batches(source: PairSource, *, batch_tokens: int, rows_multiple: int = 8) -> BatchPlan:
    """Lays out batches of pairs of about the same length.

    Args:
        source: The pairs.
        batch_tokens: The most tokens of a side of a batch, padding included.
        rows_multiple: What the number of sentences of each batch is a multiple of. The number of
            replicas has to divide it, and does not change the batches otherwise.

    Returns:
        The plan.

    Raises:
        DataError: The longest pair does not fit; field `batch_tokens`.
    """
    lengths = source.lengths
    widths = bucket_widths(int(lengths.max()))
    fixed_rows(batch_tokens=batch_tokens, max_length=int(widths[-1]), rows_multiple=rows_multiple)
    buckets = np.searchsorted(widths, lengths)
    counts = np.bincount(buckets, minlength=len(widths))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    rows = batch_tokens // widths // rows_multiple * rows_multiple
    starts, taken = _cuts(offsets, rows, rows_multiple)
    return BatchPlan(
        np.argsort(buckets, kind="stable").astype(np.int64), offsets, starts, taken, rows_multiple
    )


def bucket_widths(longest: int) -> np.ndarray:
    """Returns the most tokens of a sentence in each bucket, each about a tenth above the one below.

    Args:
        longest: The most tokens of a sentence in the last bucket.

    Returns:
        int64 [buckets], rising.
    """
    widths, width = [], _FIRST_WIDTH
    while width < longest:
        widths.append(width)
        width = max(width + 1, int(width * _GROWTH))
    return np.array([*widths, longest], np.int64)


def fixed_rows(*, batch_tokens: int, max_length: int, rows_multiple: int = 8) -> int:
    """Returns the sentences of a batch whose shape is always the same.

    Args:
        batch_tokens: The most tokens of a side of a batch, padding included.
        max_length: The most tokens of a sentence.
        rows_multiple: What the number is a multiple of.

    Raises:
        DataError: There is no room for `rows_multiple` of them; field `batch_tokens`.
    """
    rows = batch_tokens // max_length // rows_multiple * rows_multiple
    if not rows:
        raise DataError(
            f"got {batch_tokens:,} tokens a batch, expected at least "
            f"{max_length * rows_multiple:,}: {rows_multiple} sentences of up to {max_length} "
            "tokens (batch_rows_multiple and the longest sentence)",
            field="batch_tokens",
        )
    return rows


def steps_per_epoch(
    source: PairSource,
    *,
    batch_tokens: int | None = None,
    global_batch_size: int | None = None,
    max_length: int,
    static_shapes: bool = False,
    rows_multiple: int = 8,
) -> float:
    """Counts the batches that show each pair once; the arguments are those of `train_pairs`.

    Returns:
        A whole number with buckets, else pairs by sentences of a batch.

    Raises:
        DataError: As `train_pairs`.
    """
    if batch_tokens is None:
        return source.size / (global_batch_size or 1)
    if static_shapes:
        rows = fixed_rows(
            batch_tokens=batch_tokens, max_length=max_length, rows_multiple=rows_multiple
        )
        return source.size / rows
    plan = plan_batches(source, batch_tokens=batch_tokens, rows_multiple=rows_multiple)
    return float(plan.steps_per_epoch)


def _cuts(offsets: np.ndarray, rows: np.ndarray, multiple: int) -> tuple[np.ndarray, np.ndarray]:
    """Cuts the row of all pairs; a batch may reach into the buckets behind as far as it fits."""
    ends = offsets[1:].copy()
    # Whole batches to the end: what is missing there is padding.
    ends[-1] += -ends[-1] % multiple
    starts, taken, start = [], [], 0
    while start < ends[-1]:
        # All that end in bucket j or before have to fit at its width.
        fitting = np.minimum(rows, ends - start)
        count = int(fitting.max()) // multiple * multiple
        starts.append(start)
        taken.append(count)
        start += count
    return np.array(starts, np.int64), np.array(taken, np.int64)
