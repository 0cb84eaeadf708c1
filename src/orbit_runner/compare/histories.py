"""Where two runs of one config diverge: the step, the loss before, the tensors after.

A replayed step is that of a run if nothing differs. Imports TensorFlow only to read tensors.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from orbit_runner.errors import Diverged, first_line
from orbit_runner.run_directory.history import (
    Fingerprints,
    RunHistory,
    common_steps,
    steps_with_other_weights,
)

if TYPE_CHECKING:
    from orbit_runner.checkpoint.fingerprint import CheckpointContent


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
    compared = tuple(saved for saved in common_steps(left, right) if after < saved <= step)
    differ = [saved for saved in compared if left.fingerprints[saved] != right.fingerprints[saved]]
    diff = RunDiff(
        step=step,
        left=left.fingerprints.get(step),
        right=right.fingerprints.get(step),
        compared=compared,
    )
    if diff.right is not None and not differ:
        return diff
    first, end = (differ[0], differ[0]) if differ else (None, step)
    by_weights = steps_with_other_weights(left, right, differ)
    last_equal = max((saved for saved in compared if first is None or saved < first), default=None)
    begin = (after if last_equal is None else last_equal) + 1
    return dataclasses.replace(
        diff,
        first=first,
        first_weights=by_weights[0] if by_weights else None,
        last_equal=last_equal,
        loss=first_loss_difference(left, right, range(begin, end + 1), summary_interval, after),
        tensors=_diff_tensors(left, right, first, step)
        if first is not None and reads_tensors
        else None,
    )


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
        and not any((step - 1) // interval * interval < resumed_at < step for resumed_at in resumed)
    ]


def _diff_tensors(left: RunHistory, right: RunHistory, first: int, last: int) -> TensorDiff | None:
    for step in _common_checkpoints(left, right, first, last):
        diff = compare_tensors(left.checkpoints.prefix(step), right.checkpoints.prefix(step), step)
        if diff is not None:
            return diff
    return None


def _common_checkpoints(
    left: RunHistory, right: RunHistory, first: int, last: int
) -> Sequence[int]:
    shared_steps = {*left.checkpoints.steps()} & {*right.checkpoints.steps()}
    return sorted(step for step in shared_steps if first <= step <= last)


@dataclasses.dataclass(frozen=True)
class LargestDifference:
    """The position at which two checkpoints differ most."""

    name: str
    index: tuple[int, ...]  # () in a scalar.
    left: float
    right: float
    difference: float  # Absolute; infinite if one of the values is NaN.


@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorDiff:
    """The differences between two checkpoints of a step."""

    step: int
    kind: str  # `weights`, or `state` if the weights are equal and other tensors differ.
    first: str  # The first tensor that differs, in the order of the layers.
    differing: int  # Number of tensors of the kind that differ.
    total: int  # Number of tensors of the kind.
    largest: LargestDifference | None = None  # None if no pair of tensors can be subtracted.


def compare_tensors(left: Path, right: Path, step: int) -> TensorDiff | None:
    """Compares the weights of two checkpoints, and the rest of the state if they are equal.

    Paths have no suffix. Returns None if nothing differs or if a checkpoint cannot be read. Holds
    one tensor of each checkpoint in memory at a time. Imports tensorflow.
    """
    import tensorflow as tf

    from orbit_runner.checkpoint.fingerprint import CheckpointContent

    try:
        pair = CheckpointContent(left), CheckpointContent(right)
        weights = {**pair[1].weights(), **pair[0].weights()}
        state = {
            key: _strip_attributes(key) for checkpoint in pair for key in checkpoint.state_keys()
        }
        return _compare("weights", weights, pair, step) or _compare("state", state, pair, step)
    except (OSError, ValueError, IndexError, RuntimeError, tf.errors.OpError):
        return None  # A run that is still training has removed it.


def _compare(
    kind: str, names: dict[str, str], pair: tuple[CheckpointContent, CheckpointContent], step: int
) -> TensorDiff | None:
    differing: list[str] = []
    largest: LargestDifference | None = None
    for key in sorted(names, key=_natural_sort_key):
        values = [
            checkpoint.tensor(key) if key in checkpoint.shapes else None for checkpoint in pair
        ]
        if is_bitwise_equal(*values):
            continue
        differing.append(names[key])
        place = largest_difference(names[key], *values)
        if place and (largest is None or place.difference > largest.difference):
            largest = place
    if not differing:
        return None
    return TensorDiff(
        step=step, kind=kind, first=differing[0], differing=len(differing), total=len(names),
        largest=largest,
    )  # fmt: skip


def _natural_sort_key(key: str) -> list[tuple[int, str]]:
    """Returns a sort key that puts `layer_with_weights-10` after `layer_with_weights-9`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _split_digits(key)]


def _split_digits(key: str) -> Iterator[str]:
    return filter(None, re.split(r"(\d+)", key))


def _strip_attributes(key: str) -> str:
    return key.partition("/.ATTRIBUTES")[0]


def is_bitwise_equal(left: np.ndarray | None, right: np.ndarray | None) -> bool:
    """Returns whether two tensors have the same type, shape and bits; False if one is missing."""
    if left is None or right is None:
        return False
    a, b = np.asarray(left), np.asarray(right)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()


def largest_difference(
    name: str, left: np.ndarray | None, right: np.ndarray | None
) -> LargestDifference | None:
    """Returns where two tensors differ most; None if they cannot be subtracted."""
    if left is None or right is None:
        return None
    try:
        a, b = np.asarray(left).astype(np.float64), np.asarray(right).astype(np.float64)
    except (TypeError, ValueError):
        return None  # Strings.
    if a.shape != b.shape or not a.size:
        return None
    with np.errstate(invalid="ignore"):
        off = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    off = np.where(np.isnan(off), np.inf, off)
    index = np.unravel_index(int(np.argmax(off)), off.shape)
    place = tuple(int(number) for number in index)
    return LargestDifference(name, place, float(a[index]), float(b[index]), float(off[index]))


OWN = "own"
DIFFERS = "differs"
UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True)
class StepVerdict:
    """Whether a replayed step is that of the run: `own`, `differs` or `unknown`, and why."""

    verdict: str
    reason: str

    def __str__(self) -> str:
        words = {OWN: "the run's own step", DIFFERS: "differs from the run", UNKNOWN: "not known"}
        joint = ", because " if self.verdict == UNKNOWN else ": "
        return f"{words[self.verdict]}{joint}{self.reason}"


def judge_step(
    original: RunHistory,
    replay: RunHistory,
    *,
    step: int,
    after: int,
    end: int,
    summary_interval: int,
    error: Exception | None = None,
) -> StepVerdict:
    """Returns whether the replay took the step of the original run.

    Args:
        original: The history of the run.
        replay: The history of its repetition.
        step: The step.
        after: The step of the checkpoint from which the replay started; -1 for the beginning.
        end: The step up to which the replay continued after the step, if nothing stopped it.
        summary_interval: The number of steps that a training record averages over.
        error: The error that ended the replay, if any.

    Returns:
        The verdict, with the first difference, or what was compared.
    """
    saved = [known for known in common_steps(original, replay) if after < known <= end]
    if other := steps_with_other_weights(original, replay, saved):
        return StepVerdict(
            DIFFERS, f"the weights of step {other[0]} are not those of its checkpoint"
        )
    steps = range(after + 1, end + 1)
    loss_diff = first_loss_difference(original, replay, steps, summary_interval, after)
    if loss_diff is not None:
        losses = f"{loss_text(loss_diff.left)} → {loss_text(loss_diff.right)}"
        return StepVerdict(DIFFERS, f"the loss in the record of step {loss_diff.step}: {losses}")
    if later := [known for known in saved if known >= step]:
        return StepVerdict(OWN, f"the weights of step {later[0]} have the fingerprint of the run")
    records = comparable_records(original, replay, steps, summary_interval, after)
    if later := [known for known in records if known >= step]:
        return StepVerdict(OWN, f"the record of step {later[0]} has the loss of the run")
    if error is not None:
        return _judge_error(original, error)
    return StepVerdict(UNKNOWN, _explain_unknown(original, step, end))


def _judge_error(original: RunHistory, error: Exception) -> StepVerdict:
    """Compares how both runs ended."""
    text = f"{type(error).__name__}: {first_line(error)}"
    ends = [str(attempt.get("outcome", "")).partition("\n")[0] for attempt in original.attempts]
    if text in ends:
        return StepVerdict(OWN, f"both ended with the same error: {first_line(error)}")
    kind = "training diverged" if isinstance(error, Diverged) else "the replay failed"
    return StepVerdict(UNKNOWN, f"{kind} before the next checkpoint or record of the run")


def _explain_unknown(original: RunHistory, step: int, end: int) -> str:
    known: Sequence[int] = sorted({*original.fingerprints, *original.losses})
    after = [recorded for recorded in known if recorded >= step]
    if not after:
        return "the run has no checkpoint and no record at that step or after it"
    if after[0] > end:
        return (
            f"the next checkpoint or record of the run is that of step {after[0]}; --verify "
            "continues to it"
        )
    return "the records of the run and of the replay are over different steps"


def loss_text(value: float | None) -> str:
    """Returns a loss or an element of a tensor with all digits that may differ."""
    return "not a number" if value is None else f"{value:.9g}"
