"""Targets that read the files of a run directory, which a stranger may have written."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.record import CheckpointRecord
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.serialize import to_yaml
from orbit_runner.run_directory.branch import ancestry, read_branch
from orbit_runner.run_directory.config_values import read_setting, read_settings
from orbit_runner.run_directory.data_record import has_record, inexact_data, read_record
from orbit_runner.run_directory.history import read_history
from orbit_runner.run_directory.metric_records import (
    read_curves,
    read_last_records,
    read_recoveries,
    read_skipped_steps,
)
from orbit_runner.run_directory.run_summary import read_summary
from orbit_runner.sweep.results import (
    RESULTS_FILE,
    SeedResult,
    SweepResults,
    TrialResult,
    read_results,
)
from orbit_runner.utils.files import cut_records, recorded_steps, repair_records
from tools.fuzz.target import Seeds, Target

_RUN = {
    "attempts": [
        {
            "argv": ["run", "--experiment=digits"], "mode": "train_and_eval", "step": 20,
            "started": "2026-01-01T10:00:00+0000", "finished": "2026-01-01T10:01:00+0000",
            "outcome": "done", "experiment": "digits", "train_steps": 20, "seed": 3,
            "metrics": {"accuracy": 0.5}, "changes": {"runtime.seed": 3}, "weights": "ab",
            "best": {"metric": "accuracy", "directory": "best"},
        }
    ]
}  # fmt: skip
_METRICS = (
    {"step": 10, "split": "train", "time": 1.5, "training_loss": 0.7, "watch/x": None},
    {"step": 10, "split": "validation", "time": 2.5, "accuracy": 0.25},
    {"step": 10, "event": "skipped", "skipped": [3, 4]},
    {"step": 12, "event": "recovered", "recoveries": 1},
    {"step": 20, "split": "validation", "time": 3.5, "accuracy": 0.5},
)
_PRINTS = ({"step": 10, "weights": "ab", "state": "cd"}, {"step": 20, "weights": "ef", "state": ""})
_DATA = {
    "format": 1,
    "sections": {
        "train_data": [{"name": "a", "bytes": 3, "mtime_ns": 5, "digest": "sha256:00", "files": 1}]
    },
    "changes": [{"step": 3, "date": "2026", "changes": ["a"]}],
}
_BRANCH = {
    "format": 1, "parent": "../a", "step": 5, "weights": "ab", "state": "cd", "configs": ["00"],
    "changes": [{"path": "runtime.seed", "from": "1", "to": "[2, {a: b}]"}],
    "attempts": [{"mode": "train"}],
}  # fmt: skip


def run_targets() -> list[Target]:
    """Returns the targets that read the files of a run directory."""
    return [
        _target("run_json", "run.json", _json(_RUN), _read_run),
        _target("metrics", "metrics.jsonl", _lines(_METRICS), _read_metrics),
        _target("prints", "fingerprints.jsonl", _lines(_PRINTS), _read_fingerprints),
        _target("data_json", "data.json", _json(_DATA), _read_data),
        _target("branch", "branch.json", _json(_BRANCH), _read_branch),
        _target("checkpoint", "ckpt-5.json", _checkpoint, _read_checkpoint),
        _target("config_yaml", "config.yaml", _config, _read_config),
        Target(RESULTS_FILE.partition(".")[0], RESULTS_FILE, _sweep, _read_sweep),
    ]


def _target(
    name: str,
    file: str,
    seeds: Seeds,
    read: Callable[[Path], object],
) -> Target:
    return Target(name, file, seeds, read)


def _json(values: object) -> Seeds:
    return lambda folder: [json.dumps(values, indent=1).encode()]


def _lines(records: Sequence[object]) -> Seeds:
    return lambda folder: [b"".join(json.dumps(one).encode() + b"\n" for one in records)]


def _read_run(path: Path) -> None:
    read_summary(path.parent)
    found = read_history(path.parent)
    _ = found.mode, found.ends, found.is_overridden


def _read_metrics(path: Path) -> None:
    content = path.read_bytes()
    read_summary(path.parent)
    read_history(path.parent)
    read_curves(path)
    read_last_records(path)
    read_skipped_steps(path)
    read_recoveries(path)
    recorded_steps(path)
    cut_records(path, after=10)
    path.write_bytes(content)
    repair_records(path, lambda note: None)
    for other in path.parent.glob("*.damaged*"):
        other.unlink()


def _read_fingerprints(path: Path) -> None:
    folder = path.parent / "checkpoints"
    folder.mkdir(exist_ok=True)
    (folder / path.name).write_bytes(path.read_bytes())
    read_history(path.parent)
    cut_records(path, after=10)


def _read_data(path: Path) -> None:
    has_record(path.parent)
    inexact_data(path.parent)
    try:
        read_record(path.parent)
    except (OSError, ValueError):  # As documented; callers name the file.
        return


def _read_branch(path: Path) -> None:
    found = read_branch(path.parent)
    if found is not None:
        found.values()
    ancestry(path.parent)
    read_summary(path.parent)


def _checkpoint(folder: Path) -> list[bytes]:
    (folder / "ckpt-5.index").write_bytes(b"index")
    record = CheckpointRecord(step=5, weights="ab", state="cd", numerics={"threads": "1"})
    record.write(folder / "seed.json")
    unsigned = {**dataclasses.asdict(record), "files": {"a": {"bytes": 1, "sha256": ""}}}
    return [(folder / "seed.json").read_bytes(), json.dumps(unsigned).encode()]


def _read_checkpoint(path: Path) -> None:
    found = CheckpointFolder(path.parent)
    found.damage(5)
    folder = path.parent / "checkpoints"
    folder.mkdir(exist_ok=True)
    (folder / path.name).write_bytes(path.read_bytes())
    read_history(path.parent)


def _sweep(folder: Path) -> list[bytes]:
    run = SeedResult(
        seed=1, directory="0/1", status="finished", step=4, objective=0.5, weights="ab"
    )
    trial = TrialResult(number=0, settings={"runtime.seed": 1}, status="finished", runs=[run])
    results = SweepResults(
        experiment="digits", metric="loss", mode="min", space={}, search={}, seeds=[1],
        train_steps=4, trials=[trial],
    )  # fmt: skip
    return [results.to_json().encode()]


def _read_sweep(path: Path) -> None:
    found = read_results(path.parent)
    found.to_json()


def _config(folder: Path) -> list[bytes]:
    config = resolve(Request(experiment="digits")).config
    return [to_yaml(config).encode()]


def _read_config(path: Path) -> None:
    read_settings(path.parent)
    for setting in ("runtime.seed", "task.model", "name"):
        read_setting(path.parent, setting)
