"""Why two runs differ: the result of `runner why`, and its verdict in one sentence."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from orbit_runner.compare.histories import LargestDifference, loss_text
from orbit_runner.compare.records import Finding, RecordedDifferences, rank_findings
from orbit_runner.compare.step_records import TensorDifference
from orbit_runner.utils.files import to_jsonable

# Kinds that the verdict calls equal if they do not differ and are not the cause.
_EXPLICIT = ("settings", "code", "data")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reruns:
    """The result of running both runs again.

    Attributes:
        start: The step from which both were run again; 0 for the beginning.
        end: The step at which they were compared first.
        first_step: The first step after which they differ; 0 if the initial weights do, None if
            they are equal at `end`.
        tensor: The first tensor that differs; None if it is not known.
        repeats: Whether each of them gives the weights that its run recorded at `end`; None if the
            run recorded none.
        gives_other: Whether each of them gives the weights that the other run recorded at `end`.
        notes: Differences of this machine, and what could not be determined.
    """

    start: int
    end: int
    first_step: int | None
    tensor: TensorDifference | None = None
    repeats: tuple[bool | None, bool | None] = (None, None)
    gives_other: tuple[bool, bool] = (False, False)
    notes: Sequence[str] = ()

    @property
    def is_exact(self) -> bool:
        """Whether no rerun gives other weights than its run recorded."""
        return False not in self.repeats


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation:
    """The differences between two runs, and what explains them.

    Attributes:
        left: The first run, A.
        right: The second run, B.
        recorded: The differences between their records.
        reruns: The result of running them again; None if they were not run again.
        problem: Why they could not be run again, or "".
    """

    left: str
    right: str
    recorded: RecordedDifferences
    reruns: Reruns | None = None
    problem: str = ""

    @property
    def equal(self) -> bool:
        """Whether the checkpoints of the same step are equal, or the reruns if there are none."""
        if self.recorded.parting.compared:
            return self.recorded.equal
        return self.reruns is not None and self.reruns.first_step is None

    @property
    def tensor(self) -> TensorDifference | None:
        """The first tensor that differs; None if it is not known.

        It is also None if the runs cannot be repeated here, because then only their records count.
        """
        return self.reruns.tensor if self.reruns is not None and self.reruns.is_exact else None

    @property
    def causes(self) -> list[Finding]:
        """The differences that can change the weights, the best explanation first."""
        return [one for one in self._ranked if one.can_change_weights]

    @property
    def others(self) -> list[Finding]:
        """The differences that cannot change the weights."""
        return [one for one in self._ranked if not one.can_change_weights]

    @property
    def _ranked(self) -> list[Finding]:
        return rank_findings(self.recorded.findings, self.tensor.place if self.tensor else "")

    @property
    def verdict(self) -> str:
        """One sentence: the cause, and where the runs first differ."""
        if self.equal:
            return self._equal
        return "; ".join(filter(None, [self._cause, self._place]))

    @property
    def _equal(self) -> str:
        found = self.recorded.parting
        if not found.compared:
            assert self.reruns is not None
            return (
                f"equal: both were run again, and have the same weights at step {self.reruns.end}"
            )
        count = len(found.compared)
        return f"equal: {count} checkpoint{'s' if count != 1 else ''} up to step {found.step}"

    @property
    def _cause(self) -> str:
        if not self.causes:
            return f"no recorded difference explains it{self._rerun_mismatch}"
        cause = self.causes[0]
        if cause.kind == "checkpoint":
            return cause.name
        if cause.kind == "data":
            return self._data_cause(cause)
        if cause.kind == "code":
            files = [one.name for one in self.causes if one.kind == "code"]
            return f"the code differs: {', '.join(files[:3])}{', …' if files[3:] else ''}"
        if cause.kind == "settings":
            return f"{cause.name} differs ({cause.values})"
        verb = "differ" if cause.name.endswith("s") else "differs"  # devices, threads, caches
        text = f"{cause.name} {verb} ({cause.values})" if cause.values else cause.name
        return "; ".join(filter(None, [self._same_kinds, text]))

    def _data_cause(self, cause: Finding) -> str:
        file = f"{cause.name} differs ({cause.values})"
        tensor = self.tensor
        if tensor is None or tensor.place != "batch" or not tensor.examples:
            return file
        several = len(tensor.examples) > 1
        numbers = ", ".join(map(str, tensor.examples[:5])) + (", …" if tensor.examples[5:] else "")
        what = "the label" if tensor.name == "labels" and not several else f"the {tensor.name}"
        verb = "differs" if what == "the label" else "differ"
        return f"{what} of example{'s' if several else ''} {numbers} {verb}: {file}"

    @property
    def _same_kinds(self) -> str:
        """Returns such as `equal settings, code and data`, as far as it is known."""
        unknown = " ".join(self.recorded.unknown)
        differing = {one.kind for one in self.causes}
        same = [
            kind for kind in _EXPLICIT if kind not in differing and f"the {kind} of" not in unknown
        ]
        if not same:
            return ""
        *first, last = same
        return f"equal {', '.join(first)} and {last}" if first else f"equal {last}"

    @property
    def _rerun_mismatch(self) -> str:
        """Returns which run differs from its repetition, if that is known."""
        found = self.reruns
        if found is None or found.first_step is not None:
            return ""
        for name, other, gives in zip("AB", "BA", found.gives_other, strict=True):
            if gives:
                return f", but a rerun of {name} gives the weights of {other} at step {found.end}"
        return ""

    @property
    def _place(self) -> str:
        if self.tensor is not None:
            return f"first differing tensor: {str(self.tensor).removeprefix('the ')}"
        if self.reruns and self.reruns.is_exact and self.reruns.first_step is not None:
            step = self.reruns.first_step
            return (
                f"the weights first differ after step {step}" if step else "initial weights differ"
            )
        return self._recorded_place

    @property
    def _recorded_place(self) -> str:
        found = self.recorded.parting
        if not found.compared:
            return "no checkpoint of the same step"
        if found.first is None:
            return f"the recorded fingerprints are equal up to step {found.step}"
        if found.first_weights is None:
            return f"the weights are equal up to step {found.step}, but not the rest of the state"
        since = (
            f", and are equal at step {found.last_equal}" if found.last_equal is not None else ""
        )
        return f"the weights differ at step {found.first_weights}{since}"

    def as_dict(self) -> dict[str, Any]:
        """Returns the result for `--json`, with null for NaN and infinities."""
        tensor = self.tensor
        values: dict[str, Any] = to_jsonable(
            {
                "equal": self.equal,
                "verdict": self.verdict,
                "left": self.left,
                "right": self.right,
                "causes": [dataclasses.asdict(one) for one in self.causes],
                "others": [dataclasses.asdict(one) for one in self.others],
                "unknown": [*self.recorded.unknown],
                "recorded": dataclasses.asdict(self.recorded.parting),
                "reruns": dataclasses.asdict(self.reruns) if self.reruns else None,
                "first_tensor": str(tensor) if tensor else None,
                "problem": self.problem,
            }
        )
        return values


_MOST_CAUSES, _MOST_OTHERS = 20, 8


def format_explanation(found: Explanation) -> Iterator[str]:
    """Yields the lines."""
    yield found.verdict
    yield f"  {'A':<12} {found.left}"
    yield f"  {'B':<12} {found.right}"
    yield from _rows("differs", _findings(found.causes, _MOST_CAUSES))
    yield from _rows("no effect", _findings(found.others, _MOST_OTHERS))
    yield from _rows("recorded", _recorded_lines(found))
    if found.reruns is not None:
        yield from _rows("run again", _reruns(found.reruns))
        if found.reruns.tensor is not None:
            yield from _rows("tensor", _tensor(found.reruns.tensor))
    yield from _rows("not known", found.recorded.unknown)
    yield from _rows("note", [*(found.reruns.notes if found.reruns else ())])
    if found.problem:
        yield from _rows("note", [f"not run again: {found.problem}"])


def _rows(title: str, lines: Sequence[str] | Iterator[str]) -> Iterator[str]:
    for index, line in enumerate(one for text in lines for one in text.splitlines()):
        yield f"  {'' if index else title:<12} {line}"


def _findings(findings: Sequence[Finding], most: int) -> Iterator[str]:
    for one in findings[:most]:
        yield f"{one.name}: {one.values}" if one.values else one.name
        yield from (f"  {line}" for line in one.details)
    if findings[most:]:
        yield f"… and {len(findings) - most} more"


def _recorded_lines(found: Explanation) -> Iterator[str]:
    parting = found.recorded.parting
    if not parting.compared:
        yield "no checkpoint of the same step"
        return
    steps = ", ".join(map(str, parting.compared[:8])) + (", …" if parting.compared[8:] else "")
    yield f"checkpoints of steps {steps} were compared"
    if parting.first is None:
        return
    if parting.first_weights is None:
        yield f"the weights are equal; the rest of the state differs at step {parting.first}"
    else:
        yield f"the weights first differ at step {parting.first_weights}"
    if parting.last_equal is not None:
        yield f"everything is equal at step {parting.last_equal}"
    if parting.loss is not None:
        change = " and ".join(loss_text(one) for one in (parting.loss.left, parting.loss.right))
        yield f"the loss first differs in the record of step {parting.loss.step}: {change}"


def _reruns(found: Reruns) -> Iterator[str]:
    yield f"from step {found.start} to {found.end}"
    if found.first_step is None:
        yield f"both have the same weights at step {found.end}"
    elif found.first_step <= found.start:
        yield f"the weights differ before step {found.start + 1}"
    else:
        yield f"they first differ after step {found.first_step}"
    for name, repeats in zip("AB", found.repeats, strict=True):
        if repeats:
            yield f"{name} has the weights that it recorded at step {found.end}"
    for name, other, gives in zip("AB", "BA", found.gives_other, strict=True):
        if gives and found.first_step is None:
            yield f"{name} has the weights that {other} recorded at step {found.end}"


def _tensor(found: TensorDifference) -> Iterator[str]:
    yield str(found)
    if found.problem:
        yield found.problem
    if found.total and not found.problem:
        yield f"{found.differing:,} of {found.total:,} elements differ"
    if found.examples:
        more = ", …" if found.examples[8:] else ""
        yield f"examples: {', '.join(map(str, found.examples[:8]))}{more}"
    if found.largest is not None:
        yield _largest(found.largest)


def _largest(found: LargestDifference) -> str:
    index = f" at [{', '.join(map(str, found.index))}]" if found.index else ""
    values = f"{loss_text(found.left)} and {loss_text(found.right)}"
    return f"largest difference {found.difference:.3g}{index}: {values}"
