"""Finds the first step after which two runs differ, by training both in parallel."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol


@dataclasses.dataclass(frozen=True)
class StepState:
    """The state of a run after a step.

    Attributes:
        step: The step.
        weights: The fingerprint of the weights.
        tensors: The digest of each variable, by place and name: `weights:dense/kernel`.
        numerics: What the weights depend on besides the config.
    """

    step: int
    weights: str
    tensors: Mapping[str, str]
    numerics: Mapping[str, str]

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any]) -> StepState:
        """Returns the state in the answer of a process."""
        return cls(**{field.name: answer[field.name] for field in dataclasses.fields(cls)})


class Pair(Protocol):
    """Two runs that are trained in parallel, and are always at the same step."""

    def advance(self, step: int) -> tuple[StepState, StepState]:
        """Trains both to a step."""
        ...

    def keep(self) -> None:
        """Keeps the state of both, to return to it."""
        ...

    def go_back(self) -> None:
        """Returns both to the state that was kept last."""
        ...


def is_same(left: StepState, right: StepState) -> bool:
    """Returns whether the variables of two runs are the same.

    Slots that only one of them has belong to another kind of optimizer; the weights show whether it
    makes a difference.
    """
    names = [{name for name in one.tensors if name.startswith("weights:")} for one in (left, right)]
    if names[0] != names[1]:
        return False
    both = (name for name in left.tensors if name in right.tensors)
    return all(left.tensors[name] == right.tensors[name] for name in both)


def find_first_step(pair: Pair, low: int, high: int) -> int:
    """Returns the first step after which both differ, and leaves both before that step.

    Both must be at the step `low`, where they are the same and which is kept. They must differ at
    `high`.
    """
    middle = low + 1  # Most differences begin at the first step.
    while high - low > 1:
        if is_same(*pair.advance(middle)):
            pair.keep()
            low = middle
        else:
            pair.go_back()
            high = middle
        middle = (low + high) // 2
    return high
