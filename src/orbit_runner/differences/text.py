"""The output of `runner why`: the verdict first, then what it is based on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orbit_runner.audit.tensor_diff import LargestDifference
from orbit_runner.differences.explanation import Explanation, Reruns
from orbit_runner.differences.findings import Finding
from orbit_runner.differences.step_record import TensorDifference

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
        change = " and ".join(_number(one) for one in (parting.loss.left, parting.loss.right))
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
    values = f"{_number(found.left)} and {_number(found.right)}"
    return f"largest difference {found.difference:.3g}{index}: {values}"


def _number(value: float | None) -> str:
    return "not a number" if value is None else f"{value:.9g}"
