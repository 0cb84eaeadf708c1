"""`runner why`: finds why two runs differ."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from orbit_runner import exit_codes
from orbit_runner.cli.command import Command, emit
from orbit_runner.cli.flags.config_flags import (
    IMPORT,
    PROGRESS_FLAGS,
    progress_of,
)
from orbit_runner.cli.flags.rows import JSON, flag, switch
from orbit_runner.cli.flags.values import RUN
from orbit_runner.compare.histories import loss_text
from orbit_runner.errors import RunnerError
from orbit_runner.repeat.records import Explanation, RecordedRun, Reruns, compare_recorded
from orbit_runner.repeat.why import rerun_both
from orbit_runner.step.tensor_comparison import TensorDifference

_MOST_CAUSES = 20
_DESCRIPTION = """\
Find out why two runs differ. First compare what both recorded: settings, data, code, versions,
threads and other numerics, checkpoints and losses. If the weights differ, run both again in
temporary directories, each with its own config and environment, from the last checkpoint at which
they are equal, and find the first step that differs, and the first tensor in it: the batch, the
output of a layer, the loss, a gradient or an update. The runs themselves are not changed. The exit
code is 0 if the runs are equal, and 4 if not."""


def main(flags: argparse.Namespace) -> int:
    """Prints why two runs differ. Returns 0 if they are equal, else 4."""
    explanation = _explain(flags, Path(flags.a), Path(flags.b))
    code = 0 if explanation.equal else exit_codes.DIFFERENT
    return emit(flags, explanation.as_dict(), _lines(explanation), code)


def _explain(flags: argparse.Namespace, left: Path, right: Path) -> Explanation:
    imports = tuple(flags.imports or ())
    runs = RecordedRun(left, "A", imports), RecordedRun(right, "B", imports)
    explanation = compare_recorded(*runs)
    recorded = explanation.recorded
    if flags.recorded or (recorded.compared and recorded.first_weights is None):
        return explanation
    progress = progress_of(flags, "why", f"{flags.a} {flags.b}")
    with progress.shown_scope():
        try:
            reruns = rerun_both(runs, recorded, imports, progress.phase)
        except RunnerError as error:
            return dataclasses.replace(explanation, problem=str(error))
    return dataclasses.replace(explanation, reruns=reruns)


def _lines(explanation: Explanation) -> Iterator[str]:
    yield explanation.verdict
    yield f"  {'A':<12} {explanation.left}"
    yield f"  {'B':<12} {explanation.right}"
    causes = [f"{cause.name}: {cause.values}".removesuffix(": ") for cause in explanation.causes]
    more = len(causes) - _MOST_CAUSES
    if more > 0:
        causes[_MOST_CAUSES:] = [f"… and {more} more"]
    yield from _rows("differs", causes)
    yield from _rows("recorded", _recorded_lines(explanation))
    reruns = explanation.reruns
    if reruns is not None:
        yield from _rows("run again", _rerun_lines(reruns))
        yield from _rows("tensor", _tensor_lines(reruns.tensor) if reruns.tensor else ())
    yield from _rows("not known", explanation.unknown)
    yield from _rows("note", reruns.notes if reruns else ())
    if explanation.problem:
        yield from _rows("note", [f"not run again: {explanation.problem}"])


def _rows(title: str, lines: Iterable[str]) -> Iterator[str]:
    text_lines = [line for text in lines for line in text.splitlines()]
    for index, line in enumerate(text_lines):
        yield f"  {'' if index else title:<12} {line}"


def _recorded_lines(explanation: Explanation) -> Iterator[str]:
    recorded = explanation.recorded
    if recorded.compared:
        yield f"checkpoints of steps {_shorten(recorded.compared)} were compared"
    if recorded.first is not None or not recorded.compared:
        yield explanation.recorded_place
    if recorded.first is not None and recorded.loss is not None:
        losses = f"{loss_text(recorded.loss.left)} and {loss_text(recorded.loss.right)}"
        yield f"the loss first differs in the record of step {recorded.loss.step}: {losses}"


def _shorten(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:8])) + (", …" if numbers[8:] else "")


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
    elif difference.total:
        yield f"{difference.differing:,} of {difference.total:,} elements differ"
    if difference.examples:
        yield f"examples: {_shorten(difference.examples)}"


_FLAGS = (
    flag("a=A", "run directory", type=RUN),
    flag("b=B", "the run directory to compare it with", type=RUN),
    switch("--recorded", "only compare what the runs recorded; do not run them again"),
    IMPORT,
    *PROGRESS_FLAGS,
    JSON,
)
COMMAND = Command("why", _DESCRIPTION, _FLAGS, ["runs/a runs/b"], main)
