"""The two processes that run both runs again, each with the environment that its run recorded."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orbit_runner.compare.records import RecordedRun
from orbit_runner.compare.step_records import StepState
from orbit_runner.determinism.numerics_record import environment_of
from orbit_runner.distribute import tf_environment
from orbit_runner.errors import RunnerError

_WAIT_SECONDS = 10.0


class SideProcess:
    """A process that runs `side_process.py`."""

    def __init__(
        self, name: str, run: RecordedRun, directory: Path, imports: tuple[str, ...]
    ) -> None:
        assert run.resolved is not None
        self._name, self._messages = name, directory.with_name(f"{directory.name}.stderr")
        # Sets the path, because `-c` adds the working directory, which an installed `runner` does
        # not have.
        module = "orbit_runner.cli.why.side_process"
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
        self.send(
            run=str(run.path),
            directory=str(directory),
            imports=imports,
            strategy=run.record.strategy if run.record else "",
        )

    def send(self, **values: Any) -> None:
        """Sends a command, or what the process needs to start."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `answer` reports the reason.
            self._process.stdin.write(f"{json.dumps(values)}\n")
            self._process.stdin.flush()

    def read_answer(self) -> dict[str, Any]:
        """Returns the answer to the last command; raises `RunnerError` if the process failed."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": self._last_message()}
        if "error" in answer:
            raise RunnerError(f"{self._name} cannot be run again: {answer['error']}")
        return answer

    def _last_message(self) -> str:
        code = self._process.wait()
        lines = self._messages.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else f"its process ended with code {code}"

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
    found = dict(os.environ)
    if run.record is not None:
        for name, value in environment_of(run.record.numerics).items():
            found.pop(name, None)
            if value is not None:
                found[name] = value
    # Both processes share the memory of the GPUs.
    found.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    found.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    found.setdefault("TF_USE_LEGACY_KERAS", "1")
    return found | dict(tf_environment.required_variables(run.resolved.config.runtime))


class SidePair:
    """Both runs, trained in parallel. A `Pair`."""

    def __init__(self, left: SideProcess, right: SideProcess) -> None:
        self._sides = left, right

    def send_to_both(self, **command: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Sends a command to both, and returns their answers."""
        for side in self._sides:
            side.send(**command)
        return self.read_answers()

    def read_answers(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the answers to what was sent last."""
        left, right = self._sides
        return left.read_answer(), right.read_answer()

    def advance(self, step: int) -> tuple[StepState, StepState]:
        """Trains both to a step."""
        left, right = self.send_to_both(do="advance", step=step)
        return StepState.from_answer(left), StepState.from_answer(right)

    def keep(self) -> None:
        """Saves the state of both."""
        self.send_to_both(do="keep")

    def go_back(self) -> None:
        """Restores the state of both that was saved last."""
        self.send_to_both(do="go_back")

    def record(self, paths: tuple[Path, Path]) -> tuple[StepState, StepState]:
        """Runs the next step of both and writes its tensors to files."""
        for side, path in zip(self._sides, paths, strict=True):
            side.send(do="record", path=str(path))
        left, right = self.read_answers()
        return StepState.from_answer(left), StepState.from_answer(right)


@contextlib.contextmanager
def side_pair_scope(
    runs: tuple[RecordedRun, RecordedRun], folder: Path, imports: tuple[str, ...]
) -> Iterator[SidePair]:
    """Starts both processes, in the directories `a` and `b` of `folder`, and ends them.

    Start from the checkpoints in these directories, if there are any. The first answers are the
    reports of the state at the start.
    """
    with contextlib.ExitStack() as stack:
        sides = []
        for name, run in zip("AB", runs, strict=True):
            side = SideProcess(name, run, folder / name.lower(), imports)
            stack.callback(side.end)
            sides.append(side)
        yield SidePair(*sides)


@contextlib.contextmanager
def temporary_scope() -> Iterator[Path]:
    """Yields a directory that is deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="why-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
