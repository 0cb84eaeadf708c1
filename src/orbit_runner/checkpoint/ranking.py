"""The ranking of the best checkpoints, and which of them are kept. Imports no tensorflow."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from orbit_runner.checkpoint.directory import CheckpointFolder


class Entry(NamedTuple):
    """A result of an evaluation, and the step of the weights."""

    value: float
    step: int


Ranking = Sequence[Entry]  # The best one first.


def insert_entry(
    ranking: Ranking, entry: Entry, is_better: Callable[[float, float], bool], most: int
) -> list[Entry] | None:
    """Returns a ranking with another result, or None if the result is not among the best `most`.

    Of equal results, the earlier one ranks first. A result of a step that is already ranked counts
    only if it is better than before. Results that are NaN or infinite are never ranked.
    """
    before = next((other for other in ranking if other.step == entry.step), None)
    if not math.isfinite(entry.value) or (before and not is_better(entry.value, before.value)):
        return None
    others = [other for other in ranking if other is not before]
    place = next(
        (at for at, other in enumerate(others) if is_better(entry.value, other.value)), len(others)
    )
    if place >= most:
        return None
    return [*others[:place], entry, *others[place:]][:most]


class KeepRanked:
    """Keeps the checkpoints of a ranking, and those that the latest checkpoint of the run ranks.

    A run that is resumed, or that returns to its latest checkpoint, has the ranking of that
    checkpoint again, and needs them.
    """

    def __init__(self) -> None:
        self.ranking: Ranking = ()
        self.needed: frozenset[int] = frozenset()  # Further steps to keep.

    def steps_to_keep(self, steps: Sequence[int]) -> list[int]:
        """Returns the steps to keep, the best one last."""
        ranked = [entry.step for entry in reversed(self.ranking) if entry.step in steps]
        return [step for step in steps if step in self.needed and step not in ranked] + ranked


def ranking_on_disk(
    directory: CheckpointFolder, metric: str, is_better: Callable[[float, float], bool]
) -> list[Entry]:
    """Returns the ranking of the checkpoints in a directory, by the results in their records."""
    ranking: list[Entry] = []
    for step in directory.committed_steps():
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            record = directory.record(step)
            value = float(record.result[metric]) if record is not None else math.nan
            ranking = (
                insert_entry(ranking, Entry(value, step), is_better, len(ranking) + 1) or ranking
            )
    return ranking


def steps_by_rank(directory: CheckpointFolder) -> list[int]:
    """Returns the steps of the best checkpoints, the best one last.

    The order is that of TensorFlow's `checkpoint` file. A checkpoint that the file does not name
    comes first: the process that saved it was killed.
    """
    listed = directory.listed_steps()
    steps: Iterable[int] = directory.committed_steps()
    return sorted(steps, key=lambda step: listed.index(step) if step in listed else -1)
