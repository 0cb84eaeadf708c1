"""The output of `runner reproduce`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from orbit_runner.compare.histories import RunDiff, loss_text
from orbit_runner.errors import format_count
from orbit_runner.utils.files import to_jsonable

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A run, compared with its repetition."""

    run: str
    again: str  # new run directory; "" if it was deleted
    start: int | None  # step from which the new run resumed; None for the beginning
    notes: tuple[str, ...]  # reasons for different weights that were known before the start
    error: str  # what ended the new run early; "" if nothing
    parting: RunDiff

    @property
    def equal(self) -> bool:
        """Whether the repetition had the same result."""
        return self.parting.equal and not self.error

    def as_dict(self) -> JsonObject:
        """Returns the result for `--json`, with null for NaN and infinities."""
        values: JsonObject = to_jsonable({"equal": self.equal, **dataclasses.asdict(self)})
        return values


def print_reproduction(result: Reproduction) -> None:
    """Prints the verdict and its details on standard output."""
    print(verdict(result))
    for name, value in rows(result):
        print(f"  {name:<12} {value}")


def verdict(result: Reproduction) -> str:
    """Returns one line that says whether the runs are equal."""
    diff = result.parting
    count = len(diff.compared)
    checkpoints = format_count(count, "checkpoint")
    if result.equal:
        begin = "" if result.start is None else f", repeated from step {result.start}"
        return f"equal: {checkpoints} up to step {diff.step}{begin}"
    if diff.first is None:
        return f"differs: the new run did not reach step {diff.step}"
    what = "the weights" if diff.first == diff.first_weights else "the state, not the weights,"
    return f"differs: {what} at step {diff.first}{_last_equal_text(result)}"


def _last_equal_text(result: Reproduction) -> str:
    if result.parting.last_equal is not None:
        return f"; equal up to step {result.parting.last_equal}"
    return ", the first checkpoint that was compared"


def rows(result: Reproduction) -> Iterator[tuple[str, str]]:
    """Yields the details as (name, value)."""
    diff = result.parting
    yield from _fingerprints(diff)
    if result.equal:
        yield "run", result.run
    else:
        yield from _differences(result)
    if result.error:
        yield "stopped by", result.error
    for note in result.notes:
        yield "note", note
    if result.again:
        yield "new run", result.again


def _fingerprints(diff: RunDiff) -> Iterator[tuple[str, str]]:
    for name in ("weights", "state"):
        left, right = (getattr(side, name, "") for side in (diff.left, diff.right))
        yield name, f"sha256 {left}"
        if right != left:
            yield "", f"sha256 {right} in the new run" if right else "none in the new run"


def _differences(result: Reproduction) -> Iterator[tuple[str, str]]:
    diff = result.parting
    steps = ", ".join(map(str, diff.compared[:8])) + (", …" if diff.compared[8:] else "")
    yield "compared", f"the checkpoints of steps {steps}" if steps else "no checkpoint"
    if diff.first_weights not in (None, diff.first):
        yield "difference", f"the weights first differ at step {diff.first_weights}"
    if diff.loss is not None:
        change = f"{loss_text(diff.loss.left)} → {loss_text(diff.loss.right)}"
        yield "loss", f"first differs in the record of step {diff.loss.step}: {change}"
    elif diff.first is not None:
        yield "loss", f"the same in the records up to step {diff.first}"
    if diff.first is not None and result.again:
        yield "reason", f"see `runner why {result.run} {result.again}`"
