"""Where two runs of one config diverge: the first checkpoint and the first loss that differ.

A replayed step is that of a run if nothing differs. Does not import TensorFlow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from orbit_runner.errors import first_line
from orbit_runner.run_directory.run_reader import Fingerprints, RunReader


def common_steps(left: RunReader, right: RunReader) -> list[int]:
    """Returns the steps at which both runs have fingerprints, in ascending order."""
    return sorted({*left.fingerprints} & {*right.fingerprints})


def steps_with_other_weights(left: RunReader, right: RunReader, steps: Iterable[int]) -> list[int]:
    """Returns those of the common steps at which the weights differ."""
    return [
        step
        for step in steps
        if left.fingerprints[step].weights != right.fingerprints[step].weights
    ]


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

    @property
    def equal(self) -> bool:
        """Whether both runs reached the step with the same state and never differed before it."""
        return self.first is None and self.left is not None and self.left == self.right


def compare_runs(
    left: RunReader,
    right: RunReader,
    *,
    step: int,
    after: int = -1,
    summary_interval: int | None = 1,
) -> RunDiff:
    """Returns whether two runs of one config are equal, and otherwise where they diverge.

    `right` repeats `left`. `after` is the step at which it resumed from a checkpoint of `left`, or
    -1. `summary_interval` is the number of steps that one training record averages over; with None,
    losses are not compared.
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
        loss=None
        if summary_interval is None
        else first_loss_difference(left, right, range(begin, end + 1), summary_interval, after),
    )


def first_loss_difference(
    left: RunReader, right: RunReader, steps: range, interval: int, after: int
) -> LossDiff | None:
    """Returns the first training record with another loss, of those that end at one of `steps`."""
    for step in comparable_records(left, right, steps, interval, after):
        if left.losses[step] != right.losses[step]:
            return LossDiff(step, left.losses[step], right.losses[step])
    return None


def comparable_records(
    left: RunReader, right: RunReader, steps: range, interval: int, after: int
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
    original: RunReader,
    replay: RunReader,
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
    saved_steps = [known for known in common_steps(original, replay) if after < known <= end]
    if other := steps_with_other_weights(original, replay, saved_steps):
        return StepVerdict(
            DIFFERS, f"the weights of step {other[0]} are not those of its checkpoint"
        )
    steps = range(after + 1, end + 1)
    loss_diff = first_loss_difference(original, replay, steps, summary_interval, after)
    if loss_diff is not None:
        losses = f"{loss_text(loss_diff.left)} → {loss_text(loss_diff.right)}"
        return StepVerdict(DIFFERS, f"the loss in the record of step {loss_diff.step}: {losses}")
    if later := [known for known in saved_steps if known >= step]:
        return StepVerdict(OWN, f"the weights of step {later[0]} have the fingerprint of the run")
    records = comparable_records(original, replay, steps, summary_interval, after)
    if later := [known for known in records if known >= step]:
        return StepVerdict(OWN, f"the record of step {later[0]} has the loss of the run")
    if error is not None:
        outcome = str(original.attempts[-1].get("outcome")) if original.attempts else ""
        if outcome.partition("\n")[0] == f"{type(error).__name__}: {first_line(error)}":
            return StepVerdict(OWN, f"both ended with the same error: {first_line(error)}")
        return StepVerdict(DIFFERS, f"the replay ended with an error: {first_line(error)}")
    return StepVerdict(UNKNOWN, "the run has no comparable checkpoint or record near that step")


def loss_text(value: float | None) -> str:
    """Returns a loss or an element of a tensor with all digits that may differ."""
    return "not a number" if value is None else f"{value:.9g}"
