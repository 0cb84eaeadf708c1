"""Starts a run, and makes one of its writing system calls fail or kills it there."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import select
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orbit_runner.checkpoint.directory import CheckpointFolder
from tests.faults import starters
from tests.faults.system_calls import Call, Listener

_SECONDS = 900.0
KILL, SHORT = "kill", "short write"
ERRORS = {name: getattr(errno, name) for name in ("ENOSPC", "EIO", "EROFS", "EDQUOT")}
FAULTS = (KILL, *ERRORS, SHORT)


@dataclasses.dataclass
class Life:
    """One start of a run, from its first system call to its end.

    Attributes:
        calls: The writing calls below the directory, such as `rename checkpoints/ckpt-5.index`.
        code: The exit code, negative if a signal killed the process.
        output: What it wrote to standard output and standard error.
        complete: The steps whose checkpoints were complete when the fault happened.
    """

    calls: list[str] = dataclasses.field(default_factory=list)
    code: int = 0
    output: str = ""
    complete: list[int] = dataclasses.field(default_factory=list)


def live(
    arguments: list[str], directory: Path, fault: str = "", at: int = -1, *, as_fork: bool
) -> Life:
    """Runs `runner` to its end. `fault` happens at call number `at` below a directory."""
    life, log = Life(), directory.with_suffix(".log")
    process, descriptor = starters.start(arguments, log, as_fork=as_fork)
    watch = threading.Thread(
        target=_answer, args=(Listener(descriptor), life, directory, fault, at), daemon=True
    )
    watch.start()
    try:
        life.code = process.wait(_SECONDS)
    finally:
        process.kill()
    watch.join(_SECONDS)
    os.close(descriptor)
    life.output = log.read_text()
    return life


def _answer(listener: Listener, life: Life, directory: Path, fault: str, at: int) -> None:
    """Answers calls until all processes with the filter have ended."""
    poll = select.poll()
    poll.register(listener.descriptor, select.POLLIN)
    while True:
        [(_, event)] = poll.poll()
        if not event & select.POLLIN:
            return
        call = listener.receive()
        if call is None:
            continue
        name = _name(call, directory)
        if name:
            life.calls.append(name)
        if name and len(life.calls) - 1 == at:
            life.complete = complete_steps(directory)
            _strike(listener, call, fault)
        else:
            listener.proceed(call)


def _strike(listener: Listener, call: Call, fault: str) -> None:
    if fault == KILL:
        os.kill(call.process, signal.SIGKILL)
    elif fault == SHORT:
        written = call.write_half()
        if written is None:
            listener.proceed(call)
        else:
            listener.succeed(call, written)
    else:
        listener.fail(call, ERRORS[fault])


def _name(call: Call, directory: Path) -> str:
    """Returns the call and its paths below a directory, or "" if there are none."""
    below = [path for path in call.paths() if path.is_relative_to(directory)]
    names = [str(path.relative_to(directory)) for path in below]
    return " ".join([call.name, *names]) if names else ""


def complete_steps(directory: Path) -> list[int]:
    """Returns the steps of the checkpoints that are complete and undamaged, in order."""
    folder = CheckpointFolder(directory / "checkpoints")
    steps = [step for step in folder.committed_steps() if folder.problem(step) is None]
    return [step for step in steps if folder.record(step) is not None]


def final_state(directory: Path, step: int) -> dict[str, Any]:
    """Returns what a run must end with: fingerprints, best result and records."""
    record = json.loads((directory / "checkpoints" / f"ckpt-{step}.json").read_text())
    best = json.loads((directory / "best" / "info.json").read_text())
    records = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return {
        "weights": record["weights"],
        "state": record["state"],
        "best": best,
        "records": [(row["step"], row["split"]) for row in records if "split" in row],
    }


def spread(count: int, points: int) -> list[int]:
    """Returns `points` numbers below `count`, evenly spread; all of them if there are no more."""
    if points >= count:
        return list(range(count))
    return [(2 * index + 1) * count // (2 * points) for index in range(points)]


def problems_of(
    life: Life,
    directory: Path,
    restart: Callable[[], Life],
    state: Callable[[], dict[str, Any]],
    expected: dict[str, Any],
) -> list[str]:
    """Returns what is wrong after a fault, and after the restart without it; [] if nothing is."""
    problems = []
    if "Traceback" in life.output:
        problems.append(f"a traceback:\n{life.output}")
    # A directory that cannot be written at the start is wrong usage.
    is_refused = not life.complete and "--model_dir: cannot write" in life.output
    if life.code not in (0, 2 if is_refused else 1, -signal.SIGKILL):
        problems.append(f"exit code {life.code}:\n{life.output}")
    remaining = complete_steps(directory)
    if life.complete and (not remaining or remaining[-1] < life.complete[-1]):
        problems.append(f"checkpoint {life.complete[-1]} was complete, and {remaining} are left")
    restarted = restart()
    if restarted.code or "Traceback" in restarted.output:
        problems.append(f"the restart ended with code {restarted.code}:\n{restarted.output}")
    elif (ended := state()) != expected:
        problems.append(f"the restart gave {ended} instead of {expected}\n{restarted.output}")
    elif (
        life.complete
        and life.code != 0
        and f"restored step {remaining[-1]}" not in restarted.output
    ):
        problems.append(f"the restart did not restore step {remaining[-1]}:\n{restarted.output}")
    return problems
