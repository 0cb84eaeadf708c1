"""Why two runs differ: `runner why`.

Both are run again to find the first step, and in it the first tensor, that differs. Each of them is
run by a process of its own, with the environment that its run recorded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.compare.histories import RunDiff, loss_text
from orbit_runner.determinism.numerics_record import describe_changes, environment_of
from orbit_runner.distribute import tf_environment
from orbit_runner.errors import RunnerError, first_line, format_count
from orbit_runner.repeat.plan import copy_checkpoint, reached_step, read_repetition
from orbit_runner.repeat.records import Pair, RecordedDifferences, RecordedRun
from orbit_runner.step.tensor_comparison import TensorDifference, first_difference
from orbit_runner.utils.files import to_jsonable
from orbit_runner.utils.signals import describe_exit

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

_WAIT_SECONDS = 10.0
_MOST_CAUSES = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reruns:
    """The result of running both runs again."""

    start: int  # the step from which both were run again; 0 for the beginning
    end: int  # the step at which they were compared first
    # The first step after which they differ; 0 if the initial weights do, None if nothing does.
    first_step: int | None
    tensor: TensorDifference | None = None  # the first one that differs, if it is known
    # Whether each gives the weights that its run recorded at `end`; None if it recorded none.
    repeats: Sequence[bool | None] = (None, None)
    notes: Sequence[str] = ()  # differences of this machine, and what could not be determined


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation:
    """The differences between two runs, and what explains them."""

    left: str  # the first run, A
    right: str  # the second run, B
    recorded: RecordedDifferences
    reruns: Reruns | None = None  # None if they were not run again
    problem: str = ""  # why they could not be run again

    @property
    def equal(self) -> bool:
        """Whether the checkpoints of the same step are equal, or the reruns if there are none."""
        if self.recorded.parting.compared:
            return self.recorded.equal
        return self.reruns is not None and self.reruns.first_step is None

    @property
    def exact_reruns(self) -> Reruns | None:
        """The reruns; None if one gives other weights than its run, so that only records count."""
        return None if self.reruns is None or False in self.reruns.repeats else self.reruns

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
            is_known = self.recorded.has_settings
            unknown = "not known, because a config cannot be read"
            return "no recorded difference explains it" if is_known else unknown
        cause = self.recorded.findings[0]
        is_plural = cause.kind != "settings" and cause.name.endswith("s")
        verb = "differ" if is_plural else "differs"
        return f"{cause.name} {verb} ({cause.values})" if cause.values else cause.name

    @property
    def _place(self) -> str:
        exact = self.exact_reruns
        if exact is not None and exact.tensor is not None:
            return f"first differing tensor: {str(exact.tensor).removeprefix('the ')}"
        if exact is not None and exact.first_step is not None:
            return f"the weights first differ after step {exact.first_step}"
        return self.recorded_place

    @property
    def recorded_place(self) -> str:
        """Where the checkpoints first differ."""
        parting = self.recorded.parting
        if not parting.compared:
            return "no checkpoint of the same step"
        if parting.first_weights is None:
            return f"only the state besides the weights differs, at step {parting.first}"
        since = parting.last_equal
        equal = "" if since is None else f", and are equal at step {since}"
        return f"the weights differ at step {parting.first_weights}{equal}"

    def as_dict(self) -> dict[str, object]:
        """Returns the result for `--json`, with null for NaN and infinities."""
        recorded = dataclasses.asdict(self.recorded)
        exact = self.exact_reruns
        values: dict[str, object] = to_jsonable(
            {
                "equal": self.equal,
                "verdict": self.verdict,
                **dataclasses.asdict(self),
                "causes": recorded["findings"],
                "unknown": recorded["unknown"],
                "recorded": recorded["parting"],
                "first_tensor": str(exact.tensor) if exact and exact.tensor else None,
            }
        )
        return values


def format_explanation(explanation: Explanation) -> Iterator[str]:
    """Yields the lines."""
    yield explanation.verdict
    yield f"  {'A':<12} {explanation.left}"
    yield f"  {'B':<12} {explanation.right}"
    recorded = explanation.recorded
    causes = [f"{found.name}: {found.values}".removesuffix(": ") for found in recorded.findings]
    more = len(causes) - _MOST_CAUSES
    if more > 0:
        causes[_MOST_CAUSES:] = [f"… and {more} more"]
    yield from _rows("differs", causes)
    yield from _rows("recorded", _recorded_lines(explanation))
    reruns = explanation.reruns
    if reruns is not None:
        yield from _rows("run again", _rerun_lines(reruns))
        yield from _rows("tensor", _tensor_lines(reruns.tensor) if reruns.tensor else ())
    yield from _rows("not known", recorded.unknown)
    yield from _rows("note", reruns.notes if reruns else ())
    if explanation.problem:
        yield from _rows("note", [f"not run again: {explanation.problem}"])


def _rows(title: str, lines: Iterable[str]) -> Iterator[str]:
    text_lines = [line for text in lines for line in text.splitlines()]
    for index, line in enumerate(text_lines):
        yield f"  {'' if index else title:<12} {line}"


def _recorded_lines(explanation: Explanation) -> Iterator[str]:
    parting = explanation.recorded.parting
    if parting.compared:
        steps = ", ".join(map(str, parting.compared[:8])) + (", …" if parting.compared[8:] else "")
        yield f"checkpoints of steps {steps} were compared"
    if parting.first is not None or not parting.compared:
        yield explanation.recorded_place
    if parting.first is not None and parting.loss is not None:
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
    elif difference.total:
        yield f"{difference.differing:,} of {difference.total:,} elements differ"
    if difference.examples:
        more = ", …" if difference.examples[8:] else ""
        yield f"examples: {', '.join(map(str, difference.examples[:8]))}{more}"
    if (largest := difference.largest) is not None:
        index = f" at [{', '.join(map(str, largest.index))}]" if largest.index else ""
        values = f"{loss_text(largest.left)} and {loss_text(largest.right)}"
        yield f"largest difference {largest.difference:.3g}{index}: {values}"


def is_same(left: JsonObject, right: JsonObject) -> bool:
    """Returns whether the variables of two runs are the same, by what `why_process.py` reports.

    Slots that only one of them has belong to another kind of optimizer; the weights show whether it
    makes a difference.
    """
    a, b = left["tensors"], right["tensors"]
    if any(name.startswith("weights:") for name in a.keys() ^ b.keys()):
        return False
    return all(a[name] == b[name] for name in a.keys() & b.keys())


def rerun_both(
    runs: Pair, parting: RunDiff, imports: tuple[str, ...], phase: Callable[[str], None]
) -> Reruns:
    """Runs both again from the last step at which they are equal, and returns where they differ.

    `parting` is where their records differ, and `phase` is called with what happens next. Raises
    `RunnerError` if one of them cannot be run again.
    """
    start, source = _find_start(runs, parting)
    end = parting.first_weights or min(reached_step(run) for run in runs)
    if end <= start:
        raise RunnerError("they have no steps in common", code="not-comparable")
    with tempfile.TemporaryDirectory(prefix="why-", ignore_cleanup_errors=True) as temporary:
        for name, run in zip("AB", runs, strict=True):
            directory = Path(temporary, name)
            directory.mkdir()
            try:
                read_repetition(run.path, imports).between(None, end).prepared(directory)
            except RunnerError as error:
                message = f"{name} cannot be run again: {error}"
                raise RunnerError(message, code=error.code) from error
            if source is not None:
                copy_checkpoint(source, start, directory)
        phase(f"running both again from step {start} to {end}")
        with contextlib.closing(SidePair(runs, Path(temporary), imports)) as pair:
            return _compare(pair, runs, start, end, phase)


def _find_start(runs: Pair, parting: RunDiff) -> tuple[int, CheckpointFolder | None]:
    """Returns the last step at which both are equal and one has a checkpoint, with its directory.

    Returns (0, None) if there is none.
    """
    left, right = runs
    last = -1 if parting.last_equal is None else parting.last_equal
    for step in sorted((step for step in parting.compared if step <= last), reverse=True):
        if left.fingerprints[step] == right.fingerprints[step]:
            for checkpoints in (left.checkpoints, right.checkpoints):
                is_intact = step in checkpoints.steps() and checkpoints.problem(step) is None
                if is_intact and checkpoints.record(step) is not None:
                    return step, checkpoints
    return 0, None


def _compare(
    pair: SidePair, runs: Pair, start: int, end: int, phase: Callable[[str], None]
) -> Reruns:
    begins_equal = is_same(*pair.read_answers())
    ends = pair.ask("advance", step=end)
    repeats: list[bool | None] = []
    notes = []
    for name, run, state in zip("AB", runs, ends, strict=True):
        recorded = run.fingerprints.get(end)
        repeats.append(None if recorded is None else state["weights"] == recorded.weights)
        if repeats[-1] is False:
            notes.append(
                f"a rerun of {name} does not give the weights that {name} recorded at step {end}: "
                "this machine, its packages or the code are not those of the run, or the run was "
                "changed"
            )
        changes = describe_changes(run.numerics, state["numerics"])
        notes += [f"{name} was run again with other numerics: {line}" for line in changes]
    step = None if begins_equal else start
    if begins_equal and not is_same(*ends):
        phase(f"searching for the first step that differs, from {start + 1} to {end}")
        step = pair.find_first_step(start, end)
    tensor = None
    if step is not None:
        number = max(step, start + 1)
        phase(f"comparing the tensors of step {number}")
        try:
            tensor = pair.first_tensor(number)
        except (RunnerError, OSError, ValueError) as error:
            notes.append(f"the tensors of this step cannot be compared: {first_line(error)}")
    return Reruns(
        start=start, end=end, first_step=step, tensor=tensor, repeats=repeats, notes=notes
    )


class SidePair:
    """Both runs, trained in parallel in the directories `A` and `B`, each by `why_process.py`.

    They start from the checkpoints in these directories, if there are any. Their first answers are
    their states at the start.
    """

    def __init__(self, runs: Pair, directory: Path, imports: tuple[str, ...]) -> None:
        self._directories = [directory / "A", directory / "B"]
        self._processes: list[Any] = []  # `subprocess.Popen[str]`, with pipes
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)
            for run, place in zip(runs, self._directories, strict=True):
                self._processes.append(_start_process(run, place, imports))
            stack.pop_all()

    def close(self) -> None:
        """Ends both processes."""
        for process in self._processes:
            with contextlib.suppress(OSError):
                process.stdin.close()
            try:
                process.wait(_WAIT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()

    def ask(self, command: str, **arguments: object) -> list[JsonObject]:
        """Calls a method of `Side` in both processes, and returns what they answer."""
        for process in self._processes:
            with contextlib.suppress(BrokenPipeError):  # `read_answers` reports the reason.
                process.stdin.write(f"{json.dumps([command, arguments])}\n")
                process.stdin.flush()
        return self.read_answers()

    def read_answers(self) -> list[JsonObject]:
        """Returns the next answers; raises `RunnerError` if a process failed."""
        answers = []
        for process, directory in zip(self._processes, self._directories, strict=True):
            line = process.stdout.readline()
            answer = json.loads(line) if line else {"error": _last_message(process, directory)}
            if "error" in answer:
                message = f"{directory.name} cannot be run again: {answer['error']}"
                raise RunnerError(message, code="not-repeatable")
            answers.append(answer)
        return answers

    def find_first_step(self, low: int, high: int) -> int:
        """Returns the first step after which both differ.

        They must be the same at the step `low`, whose state is kept, and differ at `high`.
        """
        middle = low + 1  # Most differences begin at the first step.
        while high - low > 1:
            if is_same(*self.ask("advance", step=middle)):
                self.ask("keep")
                low = middle
            else:
                high = middle
            middle = (low + high) // 2
        return high

    def first_tensor(self, step: int) -> TensorDifference | None:
        """Returns the first tensor of a step that differs; the state before it must be kept."""
        self.ask("record", step=step, name="step.npz")
        left, right = (directory / "step.npz" for directory in self._directories)
        return first_difference(left, right)


def _start_process(run: RecordedRun, directory: Path, imports: tuple[str, ...]) -> Any:
    # Sets the path, because `-c` adds the working directory, which an installed `runner` does not
    # have.
    module = "orbit_runner.repeat.why_process"
    code = f"import sys; sys.path[:] = {sys.path!r}; from {module} import main; main()"
    with _messages(directory).open("wb") as messages:
        return subprocess.Popen(
            [sys.executable, "-c", code, str(run.path), str(directory), *imports],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            env=_environment(run),
            text=True,
        )


def _messages(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.stderr")


def _last_message(process: Any, directory: Path) -> str:
    code = process.wait()
    text = _messages(directory).read_text(encoding="utf-8", errors="replace").strip()
    return text.splitlines()[-1] if text else f"its process {describe_exit(code)}"


def _environment(run: RecordedRun) -> Mapping[str, str]:
    """Returns the environment of this process, with the numerics that a run recorded."""
    assert run.resolved is not None
    environment = dict(os.environ)
    for name, value in environment_of(run.numerics).items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    # Both processes share the memory of the GPUs.
    environment.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    environment.setdefault("TF_USE_LEGACY_KERAS", "1")
    return environment | dict(tf_environment.required_variables(run.resolved.config.runtime))
