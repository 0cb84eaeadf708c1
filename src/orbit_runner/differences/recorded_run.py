"""Reads what a run directory records. What is missing or unreadable is left empty."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orbit_runner.checkpoint.latest_checkpoint import current_damage
from orbit_runner.checkpoint.metadata import CheckpointRecord
from orbit_runner.config.errors import ConfigError
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from orbit_runner.data.fingerprint import Fingerprint
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.run_directory.config_values import read_settings
from orbit_runner.run_directory.data_record import read_record
from orbit_runner.run_directory.history import RunHistory, read_history
from orbit_runner.run_directory.metric_records import read_recoveries
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.run_directory.run_summary import read_summary


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """What a run directory records.

    Attributes:
        path: The run directory.
        step: The last step that the run reached.
        history: Fingerprints, losses and starts.
        settings: The settings in `config.yaml` by dotted path.
        resolved: The config; None if it cannot be built.
        problem: Why the config cannot be built, or "".
        record: The record of the newest checkpoint; None if there is none.
        data: The fingerprint of its data; None if it is not recorded.
        recoveries: (first step, recoveries) of each part of the run.
        edits: What does not match the record of a checkpoint, by step.
    """

    path: Path
    step: int
    history: RunHistory
    settings: Mapping[str, Any]
    resolved: ResolvedConfig | None
    problem: str
    record: CheckpointRecord | None
    data: Fingerprint | None
    recoveries: list[tuple[int, int]]
    edits: Mapping[int, str]

    @property
    def last_start(self) -> Mapping[str, Any]:
        """The entry of the last start in `run.json`; empty if there is none."""
        return self.history.attempts[-1] if self.history.attempts else {}


def read_recorded_run(path: Path, name: str, imports: tuple[str, ...] = ()) -> RecordedRun:
    """Returns what a run directory records.

    `name` is that of the argument, for messages. `imports` are modules to import before the config
    is built. Raises `RunnerError` if the path is no run directory.
    """
    directory = RunDirectory(path)
    if not path.is_dir():
        raise RunnerError(f"{name}: {path} is not a directory\n`runner runs` lists runs")
    if not (directory.config.exists() or directory.checkpoints.exists()):
        raise RunnerError(
            f"{name}: {path} has neither config.yaml nor checkpoints\n"
            "specify a run directory, such as runs/digits/a"
        )
    history = read_history(path)
    resolved, problem = _resolve(directory, imports)
    return RecordedRun(
        path=path,
        step=max([read_summary(path).step, *history.fingerprints]),
        history=history,
        settings=read_settings(path),
        resolved=resolved,
        problem=problem,
        record=next(_records(history), None),
        data=_data(path),
        recoveries=read_recoveries(directory.metrics),
        edits=dict(_edits(history)),
    )


def _resolve(
    directory: RunDirectory, imports: tuple[str, ...]
) -> tuple[ResolvedConfig | None, str]:
    if not directory.config.is_file():
        return None, "it has no config.yaml"
    try:
        return resolve(Request(experiment=str(directory.config), imports=imports)), ""
    except ConfigError as error:
        problem = error.problems[0] if error.problems else None
        if problem is None:
            return None, first_line(error)
        message = problem.message.partition("\n")[0]
        return None, f"{problem.path}: {message}" if problem.path else message


def _records(history: RunHistory) -> Iterator[CheckpointRecord]:
    """Yields the records that can be read, the newest one first."""
    for step in reversed(history.checkpoints.steps()):
        try:
            record = history.checkpoints.record(step)
        except (OSError, ValueError):
            continue
        if record is not None:
            yield record


def _data(path: Path) -> Fingerprint | None:
    try:
        return read_record(path)[0]
    except (OSError, ValueError):
        return None


def _edits(history: RunHistory) -> Iterator[tuple[int, str]]:
    """Yields the checkpoints whose files or fingerprints are not those that were recorded."""
    folder = history.checkpoints
    for step in folder.steps():
        damage = current_damage(folder, step)
        if damage is None or (damage and folder.is_unfinished(step)):
            continue
        if damage:
            yield step, damage
            continue
        record, trail = folder.record(step), history.fingerprints.get(step)
        if record is not None and trail is not None and record.weights != trail.weights:
            yield (
                step,
                f"its record says that the weights are {record.weights[:12]}, and "
                f"fingerprints.jsonl that they are {trail.weights[:12]}",
            )
