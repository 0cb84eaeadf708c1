"""Runs two runs again to find the first step, and in it the first tensor, that differs.

Each of them is run by a process of its own, with the environment that its run recorded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.compare.explanation import Reruns
from orbit_runner.compare.histories import RunDiff
from orbit_runner.compare.records import RecordedRun
from orbit_runner.compare.step_records import TensorDifference, first_difference
from orbit_runner.determinism.numerics_record import describe_changes, environment_of
from orbit_runner.distribute import tf_environment
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.jobs.repetition import copy_checkpoint, read_repetition
from orbit_runner.utils.signals import describe_exit

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

_WAIT_SECONDS = 10.0

Pair = tuple[RecordedRun, RecordedRun]
Phase = Callable[[str], None]


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


def is_same(left: StepState, right: StepState) -> bool:
    """Returns whether the variables of two runs are the same.

    Slots that only one of them has belong to another kind of optimizer; the weights show whether it
    makes a difference.
    """
    names = [
        {name for name in state.tensors if name.startswith("weights:")} for state in (left, right)
    ]
    if names[0] != names[1]:
        return False
    shared_names = (name for name in left.tensors if name in right.tensors)
    return all(left.tensors[name] == right.tensors[name] for name in shared_names)


def rerun_both(runs: Pair, parting: RunDiff, imports: tuple[str, ...], phase: Phase) -> Reruns:
    """Runs both again from the last step at which they are equal, and returns where they differ.

    `parting` is where their records differ, and `phase` is called with what happens next. Raises
    `RunnerError` if one of them cannot be run again.
    """
    start, source = _find_start(runs, parting)
    end = parting.first_weights or min(
        max([run.run.summary.step, *run.history.fingerprints]) for run in runs
    )
    if end <= start:
        raise RunnerError("they have no steps in common", code="not-comparable")
    with tempfile.TemporaryDirectory(prefix="why-", ignore_cleanup_errors=True) as temporary:
        for name, run in zip("AB", runs, strict=True):
            directory = Path(temporary, name.lower())
            directory.mkdir()
            _check_can_rerun(name, run, directory, imports, end)
            if source is not None:
                copy_checkpoint(source, start, directory)
        phase(f"running both again from step {start} to {end}")
        with contextlib.closing(SidePair(runs, Path(temporary), imports)) as pair:
            return _compare(pair, runs, start, end, phase)


def _check_can_rerun(
    name: str, run: RecordedRun, directory: Path, imports: tuple[str, ...], end: int
) -> None:
    """Raises `RunnerError` if a run cannot be repeated."""
    try:
        dataclasses.replace(read_repetition(run.path, imports), stop=end).checked(directory)
    except RunnerError as error:
        raise RunnerError(f"{name} cannot be run again: {error}", code=error.code) from error


def _find_start(runs: Pair, parting: RunDiff) -> tuple[int, CheckpointFolder | None]:
    """Returns the last step at which both are equal and one has a checkpoint, with its directory.

    Returns (0, None) if there is none.
    """
    left, right = (run.history.fingerprints for run in runs)
    last = -1 if parting.last_equal is None else parting.last_equal
    for step in sorted((step for step in parting.compared if step <= last), reverse=True):
        if left[step] == right[step]:
            for run in runs:
                checkpoints = run.history.checkpoints
                if step not in checkpoints.steps():
                    continue
                is_intact = checkpoints.problem(step) is None
                if is_intact and checkpoints.record(step) is not None:
                    return step, checkpoints
    return 0, None


def _compare(pair: SidePair, runs: Pair, start: int, end: int, phase: Phase) -> Reruns:
    reports = pair.read_states()
    pair.keep()
    begins_equal = is_same(*reports)
    ends = pair.advance(end)
    pair.go_back()
    step: int | None = None
    if not begins_equal:
        step = start
    elif not is_same(*ends):
        phase(f"searching for the first step that differs, from {start + 1} to {end}")
        step = pair.find_first_step(start, end)
    notes = [*_find_notes(runs, ends, end)]
    tensor: TensorDifference | None = None
    if step is not None:
        number = max(step, start + 1)
        phase(f"comparing the tensors of step {number}")
        try:
            pair.record()
            tensor = first_difference(*pair.recorded_paths)
        except (RunnerError, OSError, ValueError) as error:
            notes.append(f"the tensors of this step cannot be compared: {first_line(error)}")
    return Reruns(
        start=start,
        end=end,
        first_step=step,
        tensor=tensor,
        repeats=(_repeats(runs[0], ends[0], end), _repeats(runs[1], ends[1], end)),
        notes=notes,
    )


def _repeats(run: RecordedRun, state: StepState, step: int) -> bool | None:
    """Returns whether a rerun gives the recorded weights; None if the run recorded none."""
    fingerprints = run.history.fingerprints.get(step)
    return None if fingerprints is None else state.weights == fingerprints.weights


def _find_notes(runs: Pair, ends: tuple[StepState, StepState], end: int) -> Iterator[str]:
    """Yields which repetition does not give the weights of its run, with the known reasons."""
    for name, run, state in zip("AB", runs, ends, strict=True):
        if _repeats(run, state, end) is False:
            yield (
                f"a rerun of {name} does not give the weights that {name} recorded at step {end}: "
                "this machine, its packages or the code are not those of the run, or the run was "
                "changed"
            )
        for line in describe_changes(run.record.numerics, state.numerics) if run.record else ():
            yield f"{name} was run again with other numerics: {line}"


class SideProcess:
    """A process that runs `why_process.py`."""

    def __init__(
        self, name: str, run: RecordedRun, directory: Path, imports: tuple[str, ...]
    ) -> None:
        assert run.resolved is not None
        self._name = name
        self._messages = directory.with_name(f"{directory.name}.stderr")
        # Sets the path, because `-c` adds the working directory, which an installed `runner` does
        # not have.
        module = "orbit_runner.jobs.why_process"
        code = f"import sys; sys.path[:] = {sys.path!r}; from {module} import main; main()"
        with self._messages.open("wb") as messages:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=messages,
                env=_environment(run),
                text=True,
            )
        self.send(run=str(run.path), directory=str(directory), imports=imports)

    def send(self, **values: object) -> None:
        """Sends a command, or what the process needs to start."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `answer` reports the reason.
            self._process.stdin.write(f"{json.dumps(values)}\n")
            self._process.stdin.flush()

    def read_answer(self) -> JsonObject:
        """Returns the answer to the last command; raises `RunnerError` if the process failed."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: JsonObject = json.loads(line) if line else {"error": self._last_message()}
        if "error" in answer:
            raise RunnerError(
                f"{self._name} cannot be run again: {answer['error']}", code="not-repeatable"
            )
        return answer

    def _last_message(self) -> str:
        code = self._process.wait()
        lines = self._messages.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else f"its process {describe_exit(code)}"

    def end(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def _environment(run: RecordedRun) -> Mapping[str, str]:
    """Returns the environment of this process, with the numerics that a run recorded."""
    assert run.resolved is not None
    environment = dict(os.environ)
    if run.record is not None:
        for name, value in environment_of(run.record.numerics).items():
            environment.pop(name, None)
            if value is not None:
                environment[name] = value
    # Both processes share the memory of the GPUs.
    environment.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    environment.setdefault("TF_USE_LEGACY_KERAS", "1")
    return environment | dict(tf_environment.required_variables(run.resolved.config.runtime))


class SidePair:
    """Both runs, trained in parallel in the directories `a` and `b` of `directory`.

    They start from the checkpoints in these directories, if there are any. The first states are
    those at the start.
    """

    def __init__(self, runs: Pair, directory: Path, imports: tuple[str, ...]) -> None:
        self.recorded_paths = directory / "a.npz", directory / "b.npz"
        self._sides = list[SideProcess]()
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)
            for name, run in zip("AB", runs, strict=True):
                self._sides.append(SideProcess(name, run, directory / name.lower(), imports))
            stack.pop_all()

    def close(self) -> None:
        """Ends both processes."""
        for side in self._sides:
            side.end()

    def advance(self, step: int) -> tuple[StepState, StepState]:
        """Trains both to a step."""
        self._send(do="advance", step=step)
        return self.read_states()

    def keep(self) -> None:
        """Saves the state of both."""
        self._send(do="keep")
        self._read_answers()

    def go_back(self) -> None:
        """Restores the state of both that was saved last."""
        self._send(do="go_back")
        self._read_answers()

    def find_first_step(self, low: int, high: int) -> int:
        """Returns the first step after which both differ, and leaves both before that step.

        Both must be at the step `low`, where they are the same and which is kept. They must differ
        at `high`.
        """
        middle = low + 1  # Most differences begin at the first step.
        while high - low > 1:
            if is_same(*self.advance(middle)):
                self.keep()
                low = middle
            else:
                self.go_back()
                high = middle
            middle = (low + high) // 2
        return high

    def record(self) -> None:
        """Runs the next step of both and writes its tensors to `recorded_paths`."""
        for side, path in zip(self._sides, self.recorded_paths, strict=True):
            side.send(do="record", path=str(path))
        self._read_answers()

    def read_states(self) -> tuple[StepState, StepState]:
        """Returns the states that both answer."""
        left, right = self._read_answers()
        return StepState(**left), StepState(**right)

    def _send(self, **command: object) -> None:
        for side in self._sides:
            side.send(**command)

    def _read_answers(self) -> list[JsonObject]:
        return [side.read_answer() for side in self._sides]
