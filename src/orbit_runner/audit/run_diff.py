"""Finds where two runs of one config diverge: the step, the loss before, the tensors after."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from orbit_runner.audit.tensor_diff import TensorDiff, compare_tensors
from orbit_runner.run_directory.history import Fingerprints, RunHistory


@dataclasses.dataclass(frozen=True)
class LossDiff:
    """The first training record whose losses differ. A loss is None if it is not a number."""

    step: int  # The last step of the record.
    left: float | None
    right: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunDiff:
    """The result of comparing two runs."""

    step: int  # The step up to which they were compared.
    left: Fingerprints | None  # Fingerprints at that step; None if the run did not reach it.
    right: Fingerprints | None  # Fingerprints at that step; None if the run did not reach it.
    compared: tuple[int, ...]  # The steps at which both saved a checkpoint.
    # The first of these steps at which anything differs; None if nothing does.
    first: int | None = None
    first_weights: int | None = None  # The first of these steps at which the weights differ.
    last_equal: int | None = None  # The last of these steps before `first`.
    loss: LossDiff | None = None  # The first training record that differs, up to `first`.
    # What differs at the earliest step from `first` on whose checkpoint both runs still have.
    tensors: TensorDiff | None = None

    @property
    def equal(self) -> bool:
        """Whether both runs reached the step with the same state and never differed before it."""
        return self.first is None and self.left is not None and self.left == self.right


def compare_runs(
    left: RunHistory,
    right: RunHistory,
    *,
    step: int,
    after: int = -1,
    summary_interval: int = 1,
    reads_tensors: bool = True,
) -> RunDiff:
    """Returns whether two runs of one config are equal, and otherwise where they diverge.

    `right` repeats `left`. `after` is the step at which it resumed from a checkpoint of `left`, or
    -1. `summary_interval` is the number of steps that one training record averages over. Imports
    TensorFlow if checkpoints differ, unless `reads_tensors` is False.
    """
    both = sorted({*left.fingerprints} & {*right.fingerprints})
    compared = tuple(one for one in both if after < one <= step)
    differ = [one for one in compared if left.fingerprints[one] != right.fingerprints[one]]
    found = RunDiff(
        step=step,
        left=left.fingerprints.get(step),
        right=right.fingerprints.get(step),
        compared=compared,
    )
    if found.right is not None and not differ:
        return found
    first, end = (differ[0], differ[0]) if differ else (None, step)
    by_weights = [one for one in differ if _weights(left, one) != _weights(right, one)]
    last_equal = max((one for one in compared if first is None or one < first), default=None)
    begin = (after if last_equal is None else last_equal) + 1
    return dataclasses.replace(
        found,
        first=first,
        first_weights=by_weights[0] if by_weights else None,
        last_equal=last_equal,
        loss=first_loss_difference(left, right, range(begin, end + 1), summary_interval, after),
        tensors=_diff_tensors(left, right, first, step)
        if first is not None and reads_tensors
        else None,
    )


def _weights(run: RunHistory, step: int) -> str:
    return run.fingerprints[step].weights


def first_loss_difference(
    left: RunHistory, right: RunHistory, steps: range, interval: int, after: int
) -> LossDiff | None:
    """Returns the first training record with another loss, of those that end at one of `steps`."""
    for step in comparable_records(left, right, steps, interval, after):
        if left.losses[step] != right.losses[step]:
            return LossDiff(step, left.losses[step], right.losses[step])
    return None


def comparable_records(
    left: RunHistory, right: RunHistory, steps: range, interval: int, after: int
) -> list[int]:
    """Returns the steps at which both runs have a training record over the same steps."""
    # A resumed run starts a new record, whose mean is over fewer steps and cannot be compared.
    resumed = {after, *(left.fingerprints if len(left.attempts) > 1 else ())}
    return [
        step
        for step in sorted({*left.losses} & {*right.losses})
        if step in steps
        and not any((step - 1) // interval * interval < one < step for one in resumed)
    ]


def _diff_tensors(left: RunHistory, right: RunHistory, first: int, last: int) -> TensorDiff | None:
    for step in _common_checkpoints(left, right, first, last):
        found = compare_tensors(left.checkpoints.prefix(step), right.checkpoints.prefix(step), step)
        if found is not None:
            return found
    return None


def _common_checkpoints(
    left: RunHistory, right: RunHistory, first: int, last: int
) -> Sequence[int]:
    both = {*left.checkpoints.steps()} & {*right.checkpoints.steps()}
    return sorted(step for step in both if first <= step <= last)
