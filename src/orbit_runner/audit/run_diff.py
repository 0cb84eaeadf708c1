"""Where two runs of one config part: the step, the loss before it, the tensors after it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from orbit_runner.audit.tensor_diff import TensorParting, compare_tensors
from orbit_runner.run_directory.history import Fingerprints, RunHistory


@dataclasses.dataclass(frozen=True)
class LossParting:
    """The first record of training whose losses differ; None stands for no number.

    Attributes:
        step: The step at which the record ends.
        left: The loss of one run.
        right: That of the other.
    """

    step: int
    left: float | None
    right: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parting:
    """How two runs compare.

    Attributes:
        step: The step up to which they were compared.
        left: Fingerprints of one run at that step.
        right: Those of the other; None where it did not come that far.
        compared: The steps at which both made a checkpoint.
        first: The first of them at which anything differs; None where nothing does.
        first_weights: The first of them at which weights differ, and not only the rest.
        last_equal: The last of them before `first`.
        loss: The first record of training that differs, on the way to `first`.
        tensors: What differs at the first step from `first` on of which both have the tensors.
    """

    step: int
    left: Fingerprints | None
    right: Fingerprints | None
    compared: tuple[int, ...]
    first: int | None = None
    first_weights: int | None = None
    last_equal: int | None = None
    loss: LossParting | None = None
    tensors: TensorParting | None = None

    @property
    def equal(self) -> bool:
        """Whether both came to the step with the same state, and were equal on the way."""
        return self.first is None and self.left is not None and self.left == self.right


def compare_runs(
    left: RunHistory, right: RunHistory, *, step: int, after: int = -1, summary_interval: int = 1
) -> Parting:
    """Compares two runs of one config.

    Args:
        left: One run, as far as it had come.
        right: The other, which made the same again.
        step: The step up to which they are compared.
        after: The step from which the second went on with a checkpoint of the first; -1 for none.
        summary_interval: Steps that one record of training averages over.

    Returns:
        Whether they are equal, and else where they part.
    """
    both = sorted({*left.fingerprints} & {*right.fingerprints})
    compared = tuple(one for one in both if after < one <= step)
    differ = [one for one in compared if left.fingerprints[one] != right.fingerprints[one]]
    found = Parting(
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
        loss=_loss(left, right, range(begin, end + 1), summary_interval, after),
        tensors=None if first is None else _tensors(left, right, first, step),
    )


def _weights(run: RunHistory, step: int) -> str:
    return run.fingerprints[step].weights


def _loss(
    left: RunHistory, right: RunHistory, steps: range, interval: int, after: int
) -> LossParting | None:
    # A run that is resumed begins its record anew: its mean is of fewer steps, and no evidence.
    resumed = {after, *(left.fingerprints if len(left.attempts) > 1 else ())}
    for step in sorted(one for one in {*left.losses} & {*right.losses} if one in steps):
        begin = (step - 1) // interval * interval
        cut = any(begin < one < step for one in resumed)
        if not cut and left.losses[step] != right.losses[step]:
            return LossParting(step, left.losses[step], right.losses[step])
    return None


def _tensors(left: RunHistory, right: RunHistory, first: int, last: int) -> TensorParting | None:
    for step in _on_disk(left, right, first, last):
        found = compare_tensors(left.checkpoints.prefix(step), right.checkpoints.prefix(step), step)
        if found is not None:
            return found
    return None


def _on_disk(left: RunHistory, right: RunHistory, first: int, last: int) -> Sequence[int]:
    both = {*left.checkpoints.steps()} & {*right.checkpoints.steps()}
    return sorted(step for step in both if first <= step <= last)
