"""Why two runs differ: `runner why`.

Both are run again to find the first step, and in it the first tensor, that differs. Each of them is
run by a process of its own, with the environment that its run recorded.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.compare.histories import RunDiff
from orbit_runner.determinism.numerics_record import describe_changes, environment_of
from orbit_runner.distribute import tf_environment
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.repeat.plan import copy_checkpoint, reached_step, read_repetition
from orbit_runner.repeat.records import Pair, RecordedRun, Reruns
from orbit_runner.step.tensor_comparison import (
    TensorDifference,
    differing_tensors,
    first_difference,
)
from orbit_runner.utils.signals import describe_exit

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

_WAIT_SECONDS = 10.0


def is_same(left: JsonObject, right: JsonObject) -> bool:
    """Returns whether the variables of two runs are the same, by what `why_process.py` reports."""
    return not differing_tensors(left["tensors"], right["tensors"])


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
    last = -1 if parting.last_equal is None else parting.last_equal
    for step in reversed([step for step in parting.compared if step <= last]):
        for checkpoints in (run.checkpoints for run in runs):
            if step in checkpoints.steps() and checkpoints.problem(step) is None:
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
