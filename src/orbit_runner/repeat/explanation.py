"""Why two runs differ: the result of `runner why`, and its verdict in one sentence."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from orbit_runner.compare.histories import loss_text
from orbit_runner.errors import format_count
from orbit_runner.repeat.records import RecordedDifferences
from orbit_runner.step.step_tensors import TensorDifference
from orbit_runner.utils.files import to_jsonable


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
        notes: Differences of this machine, and what could not be determined.
    """

    start: int
    end: int
    first_step: int | None
    tensor: TensorDifference | None = None
    repeats: tuple[bool | None, bool | None] = (None, None)
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
    def verdict(self) -> str:
        """One sentence: the cause, and where the runs first differ."""
        parting = self.recorded.parting
        if not self.equal:
            return f"{self._cause}; {self._place}"
        if parting.compared:
            checkpoints = format_count(len(parting.compared), "checkpoint")
            return f"equal: {checkpoints} up to step {parting.step}"
        assert self.reruns is not None
        return f"equal: both were run again, and have the same weights at step {self.reruns.end}"

    @property
    def _cause(self) -> str:
        if not self.recorded.findings:
            return "no recorded difference explains it"
        cause = self.recorded.findings[0]
        is_plural = cause.kind != "settings" and cause.name.endswith("s")
        verb = "differ" if is_plural else "differs"
        return f"{cause.name} {verb} ({cause.values})" if cause.values else cause.name

    @property
    def _place(self) -> str:
        if self.tensor is not None:
            return f"first differing tensor: {str(self.tensor).removeprefix('the ')}"
        if self.reruns and self.reruns.is_exact and self.reruns.first_step is not None:
            return f"the weights first differ after step {self.reruns.first_step}"
        return self.recorded_place

    @property
    def recorded_place(self) -> str:
        """Where the checkpoints first differ."""
        parting = self.recorded.parting
        if not parting.compared:
            return "no checkpoint of the same step"
        if parting.first_weights is None:
            return f"only the state besides the weights differs, at step {parting.first}"
        since = (
            "" if parting.last_equal is None else f", and are equal at step {parting.last_equal}"
        )
        return f"the weights differ at step {parting.first_weights}{since}"

    def as_dict(self) -> dict[str, object]:
        """Returns the result for `--json`, with null for NaN and infinities."""
        recorded = self.recorded
        values: dict[str, object] = to_jsonable(
            {
                "equal": self.equal,
                "verdict": self.verdict,
                **dataclasses.asdict(self),
                "causes": [dataclasses.asdict(finding) for finding in recorded.findings],
                "unknown": [*recorded.unknown],
                "recorded": dataclasses.asdict(recorded.parting),
                "first_tensor": str(self.tensor) if self.tensor else None,
            }
        )
        return values


_MOST_CAUSES = 20


def format_explanation(explanation: Explanation) -> Iterator[str]:
    """Yields the lines."""
    yield explanation.verdict
    yield f"  {'A':<12} {explanation.left}"
    yield f"  {'B':<12} {explanation.right}"
    findings = explanation.recorded.findings
    texts = [f"{found.name}: {found.values}".removesuffix(": ") for found in findings]
    more = [f"… and {len(texts) - _MOST_CAUSES} more"] if texts[_MOST_CAUSES:] else []
    yield from _rows("differs", [*texts[:_MOST_CAUSES], *more])
    yield from _rows("recorded", _recorded_lines(explanation))
    reruns = explanation.reruns
    if reruns is not None:
        yield from _rows("run again", _rerun_lines(reruns))
        if reruns.tensor is not None:
            yield from _rows("tensor", _tensor_lines(reruns.tensor))
    yield from _rows("not known", explanation.recorded.unknown)
    if reruns is not None:
        yield from _rows("note", reruns.notes)
    if explanation.problem:
        yield from _rows("note", [f"not run again: {explanation.problem}"])


def _rows(title: str, lines: Iterable[str]) -> Iterator[str]:
    shown = [line for text in lines for line in text.splitlines()]
    for index, line in enumerate(shown):
        yield f"  {'' if index else title:<12} {line}"


def _recorded_lines(explanation: Explanation) -> Iterator[str]:
    parting = explanation.recorded.parting
    if not parting.compared:
        yield "no checkpoint of the same step"
        return
    steps = ", ".join(map(str, parting.compared[:8])) + (", …" if parting.compared[8:] else "")
    yield f"checkpoints of steps {steps} were compared"
    if parting.first is None:
        return
    yield explanation.recorded_place
    if parting.loss is not None:
        losses = f"{loss_text(parting.loss.left)} and {loss_text(parting.loss.right)}"
        yield f"the loss first differs in the record of step {parting.loss.step}: {losses}"


def _rerun_lines(reruns: Reruns) -> Iterator[str]:
    yield f"from step {reruns.start} to {reruns.end}"
    if reruns.first_step is None:
        yield f"both have the same weights at step {reruns.end}"
    else:
        yield f"they first differ after step {reruns.first_step}"
    for name, repeats in zip("AB", reruns.repeats, strict=True):
        if repeats:
            yield f"{name} has the weights that it recorded at step {reruns.end}"


def _tensor_lines(difference: TensorDifference) -> Iterator[str]:
    yield str(difference)
    if difference.problem:
        yield difference.problem
    if difference.total and not difference.problem:
        yield f"{difference.differing:,} of {difference.total:,} elements differ"
    if difference.examples:
        more = ", …" if difference.examples[8:] else ""
        yield f"examples: {', '.join(map(str, difference.examples[:8]))}{more}"
    if (largest := difference.largest) is not None:
        index = f" at [{', '.join(map(str, largest.index))}]" if largest.index else ""
        values = f"{loss_text(largest.left)} and {loss_text(largest.right)}"
        yield f"largest difference {largest.difference:.3g}{index}: {values}"
