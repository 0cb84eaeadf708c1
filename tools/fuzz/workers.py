"""Runs the cases of a target in several processes, and survives cases that kill or block one."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import tempfile
import time
import traceback
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tools.fuzz.guard import Guard, TooSlow
from tools.fuzz.target import Case, Target

# A case whose native code does not return to Python, on a machine that does other work, too.
_STUCK_SECONDS = 60.0
_OURS = ("orbit_runner", "tools/fuzz")
_FORK = multiprocessing.get_context("fork")


@dataclasses.dataclass(frozen=True)
class Finding:
    """A case that is a problem.

    Attributes:
        number: The number of the case.
        kind: What cases with the same cause have in common: the error and its place.
        message: The error.
    """

    number: int
    kind: str
    message: str


@dataclasses.dataclass
class Outcome:
    """The results of the cases of a target."""

    cases: int = 0
    valid: int = 0  # Cases that were read without an error.
    longest: float = 0.0  # CPU seconds of the slowest case.
    cpu_seconds: float = 0.0  # Of all cases.
    extra_bytes: int = 0  # Peak of memory over that after the imports.
    seconds: float = 0.0  # Wall time.
    problems: int = 0
    # The first case of each kind.
    findings: dict[str, Finding] = dataclasses.field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Counts a problem."""
        self.problems += 1
        self.findings.setdefault(finding.kind, finding)


def run_cases(
    target: Target, cases: int, *, seed: int = 0, processes: int = 2, seconds: float = 1e9
) -> Outcome:
    """Runs `cases` cases of a target, or as many as fit into `seconds`, and returns the results."""
    outcome, began = Outcome(), time.monotonic()
    until = began + seconds
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        workers = [
            _Worker(target, seed, range(first, cases, processes), until, Path(folder) / str(first))
            for first in range(min(processes, cases))
        ]
        while workers:
            ready = wait([worker.pipe for worker in workers], timeout=1.0)
            for worker in list(workers):
                if worker.pipe in ready:
                    worker.receive(outcome)
                elif time.monotonic() - worker.seen > _STUCK_SECONDS:
                    worker.stop("did not return", outcome)
                if worker.done:
                    workers.remove(worker)
    outcome.seconds = time.monotonic() - began
    return outcome


class _Worker:
    """A process that runs some cases, and is started again after one that kills it."""

    def __init__(
        self, target: Target, seed: int, numbers: range, until: float, folder: Path
    ) -> None:
        self._target, self._seed, self._left = target, seed, numbers
        self._until, self._folder, self._starts = until, folder, 0
        self.done = False
        self._start()

    def _start(self) -> None:
        self._starts += 1
        self.pipe, theirs = _FORK.Pipe(duplex=False)
        self.seen = time.monotonic()
        folder = self._folder.with_name(f"{self._folder.name}-{self._starts}")
        arguments = (self._target, self._seed, self._left, self._until, folder, theirs)
        self._process = _FORK.Process(target=_work, args=arguments, daemon=True)
        self._process.start()
        theirs.close()

    def receive(self, outcome: Outcome) -> None:
        """Handles a message of the process."""
        self.seen = time.monotonic()
        try:
            kind, value = self.pipe.recv()
        except EOFError:
            self._process.join()
            code = self._process.exitcode
            self.stop(f"ended the process ({-code if code and code < 0 else code})", outcome)
            return
        if kind == "at":
            self._left = self._left[self._left.index(value) :]
        elif kind == "finding":
            outcome.add(value)
        elif kind == "part":
            cases, valid, longest, extra, cpu = value
            outcome.cases, outcome.valid = outcome.cases + cases, outcome.valid + valid
            outcome.cpu_seconds += cpu
            outcome.longest = max(outcome.longest, longest)
            outcome.extra_bytes = max(outcome.extra_bytes, extra)
        else:
            self._process.join()
            self.done = True

    def stop(self, reason: str, outcome: Outcome) -> None:
        """Counts the current case as a problem, and continues with the next one."""
        self._process.kill()
        self._process.join()
        outcome.add(Finding(self._left[0], reason, f"case {self._left[0]} {reason}"))
        self._left = self._left[1:]
        self.done = not self._left
        if not self.done:
            self._start()


def _work(
    target: Target, seed: int, numbers: range, until: float, folder: Path, pipe: Connection
) -> None:
    _silence_process(folder)
    case, guard = Case(target, folder), Guard(folder)
    for content in case.seeds:  # Imports what the reader needs.
        _problem(case, content)
    guard.begin()
    part: list[Any] = [0, 0, 0.0, 0.0]
    for number in numbers:
        if time.monotonic() > until:
            break
        # Sent before the case, which may end the process.
        pipe.send(("at", number))
        content, began, found = case.content(seed, number), time.process_time(), None
        try:
            with guard.scope():
                part[1] += case.run(content)
        except (Exception, TooSlow) as error:
            found = _make_finding(number, error)
        part[0] += 1
        part[3] += time.process_time() - began
        part[2] = max(part[2], time.process_time() - began)
        if found is not None:
            pipe.send(("finding", found))
        if part[0] >= 100:
            pipe.send(("part", (*part[:3], guard.extra_bytes, part[3])))
            part = [0, 0, 0.0, 0.0]
    pipe.send(("part", (*part[:3], guard.extra_bytes, part[3])))
    pipe.send(("end", None))
    pipe.close()
    os._exit(0)  # Without the clean-up of libraries, which may wait for threads.


def _silence_process(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    null = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(null, descriptor)


def _problem(case: Case, content: bytes) -> BaseException | None:
    try:
        case.run(content)
    except Exception as error:
        return error
    return None


def _make_finding(number: int, error: BaseException) -> Finding:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [one for one in frames if any(part in one.filename for part in _OURS)]
    last = (ours or frames)[-1]
    place = f"{'/'.join(Path(last.filename).parts[-2:])}:{last.lineno}"
    kind = f"{type(error).__name__} at {place}"
    return Finding(number, kind, f"{kind}: {str(error)[:300]}")
