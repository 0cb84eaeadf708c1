"""Run directories with the files that the commands read, for tests that need many runs."""

from __future__ import annotations

import contextlib
import fcntl
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.serialize import to_yaml

_TIME = 1_795_000_000.0


def write_run(
    path: Path,
    *,
    outcome: str | None = "done",
    step: int = 300,
    accuracies: Mapping[int, float | None] | None = None,
    losses: Sequence[float | None] = (2.0, 1.0, 0.5),
    flags: Sequence[tuple[str, str]] = (),
    weights: Mapping[int, str] | None = None,
    **record: Any,
) -> Path:
    """Writes a run directory of `digits`, one training record per 100 steps. Returns its path.

    `outcome` is None for a process that was killed. `flags` are (dotted path, text) of settings.
    `weights` are fingerprints by step. `record` are further keys of the entry in `run.json`.
    """
    path.mkdir(parents=True)
    resolved = resolve(
        Request(experiment="digits", flags=tuple((f"--{name}", name, text) for name, text in flags))
    )
    (path / "config.yaml").write_text(f"# Made by: a test\n{to_yaml(resolved.config)}")
    attempt: dict[str, Any] = {
        "mode": "train_and_eval",
        "seed": 17,
        "started": "2026-11-20T10:00:00+0000",
        "experiment": "digits",
        "changes": {name: yaml.safe_load(text) for name, text in flags},
        "train_steps": 300,
        "best": {"metric": "accuracy", "directory": "best"},
        "devices": {"gpus": [], "cpu_cores": 1},
        "software": {"tensorflow": "2.20.0"},
    }
    if outcome is not None:
        attempt |= {"finished": "2026-11-20T10:01:30+0000", "outcome": outcome}
        if outcome == "done":
            attempt |= {"step": step, "weights": "ab" * 32}
    (path / "run.json").write_text(json.dumps({"attempts": [{**attempt, **record}]}))
    (path / "metrics.jsonl").write_text(
        "".join(f"{json.dumps(values)}\n" for values in _records(losses, accuracies or {}))
    )
    (path / "checkpoints").mkdir()
    (path / "checkpoints" / "fingerprints.jsonl").write_text(
        "".join(
            f"{json.dumps({'step': at, 'weights': text, 'state': text})}\n"
            for at, text in (weights or {}).items()
        )
    )
    return path


HOLD = """\
import sys
from orbit_runner.run_directory.run_lock import RunLock
RunLock(sys.argv[1]).acquire()
assert "tensorflow" not in sys.modules
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def lock_holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Starts a process that has the lock of a directory until its input ends."""
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@contextlib.contextmanager
def locked_by_another(path: Path) -> Iterator[None]:
    """Locks a directory, which is created, as a process does that trains in it."""
    path.mkdir(exist_ok=True)
    with (path / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _records(
    losses: Sequence[float | None], accuracies: Mapping[int, float | None]
) -> list[dict[str, Any]]:
    trained: list[dict[str, Any]] = [
        {
            "step": 100 * index,
            "split": "train",
            "time": _TIME + index,
            "training_loss": loss,
            "steps_per_second": 10.0 * index,
        }
        for index, loss in enumerate(losses, start=1)
    ]
    evaluated: list[dict[str, Any]] = [
        {"step": step, "split": "validation", "time": _TIME + step / 100, "accuracy": value}
        for step, value in accuracies.items()
    ]
    return sorted([*trained, *evaluated], key=lambda record: record["step"])


def write_best(path: Path, step: int, **metrics: float) -> None:
    """Writes the metrics of the best evaluation of a run."""
    (path / "best").mkdir()
    best = json.dumps({**metrics, "best_ckpt_global_step": step})
    (path / "best" / "info.json").write_text(best)


def last_attempt(path: Path) -> dict[str, Any]:
    """Returns what `run.json` says about the last start of a run."""
    attempts: list[dict[str, Any]] = json.loads((path / "run.json").read_text())["attempts"]
    return attempts[-1]


def saved_steps(path: Path) -> list[int]:
    """Returns the steps of the complete checkpoints of a run."""
    return CheckpointFolder(path / "checkpoints").committed_steps()
