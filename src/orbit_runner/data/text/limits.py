"""Leaves out pairs in training, and truncates sentences in evaluation."""

from __future__ import annotations

import numpy as np

from orbit_runner.data.text.source import PairSource
from orbit_runner.errors import DataError
from orbit_runner.utils.log import note


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
