"""Decides whether a replayed step is the step that a run took. Does not import TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from orbit_runner.audit.run_diff import comparable_records, first_loss_difference
from orbit_runner.errors import Diverged, first_line
from orbit_runner.run_directory.history import RunHistory

OWN, DIFFERS, UNKNOWN = "own", "differs", "unknown"


@dataclasses.dataclass(frozen=True)
class StepVerdict:
    """Whether a replayed step is the one of the run: `own`, `differs` or `unknown`, and why."""

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
    both = {*original.fingerprints} & {*replay.fingerprints}
    saved = sorted(one for one in both if after < one <= end)
    for one in saved:
        if original.fingerprints[one].weights != replay.fingerprints[one].weights:
            return StepVerdict(
                DIFFERS, f"the weights of step {one} are not those of its checkpoint"
            )
    steps = range(after + 1, end + 1)
    loss_diff = first_loss_difference(original, replay, steps, summary_interval, after)
    if loss_diff is not None:
        losses = f"{_format_loss(loss_diff.left)} → {_format_loss(loss_diff.right)}"
        return StepVerdict(DIFFERS, f"the loss in the record of step {loss_diff.step}: {losses}")
    if later := [one for one in saved if one >= step]:
        return StepVerdict(OWN, f"the weights of step {later[0]} have the fingerprint of the run")
    records = comparable_records(original, replay, steps, summary_interval, after)
    if later := [one for one in records if one >= step]:
        return StepVerdict(OWN, f"the record of step {later[0]} has the loss of the run")
    if error is not None:
        return _judge_error(original, error)
    return StepVerdict(UNKNOWN, _explain_unknown(original, step, end))


def _judge_error(original: RunHistory, error: Exception) -> StepVerdict:
    """Compares how both runs ended."""
    text = f"{type(error).__name__}: {first_line(error)}"
    ends = [str(one.get("outcome", "")).partition("\n")[0] for one in original.attempts]
    if text in ends:
        return StepVerdict(OWN, f"both ended with the same error: {first_line(error)}")
    kind = "training diverged" if isinstance(error, Diverged) else "the replay failed"
    return StepVerdict(UNKNOWN, f"{kind} before the next checkpoint or record of the run")


def _explain_unknown(original: RunHistory, step: int, end: int) -> str:
    known: Sequence[int] = sorted({*original.fingerprints, *original.losses})
    after = [one for one in known if one >= step]
    if not after:
        return "the run has no checkpoint and no record at that step or after it"
    if after[0] > end:
        return (
            f"the next checkpoint or record of the run is that of step {after[0]}; --verify "
            "continues to it"
        )
    return "the records of the run and of the replay are over different steps"


def _format_loss(value: float | None) -> str:
    return "not a number" if value is None else f"{value:.9g}"
