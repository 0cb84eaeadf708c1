"""Evaluations of a run that are not part of its training, and the data that they measure.

`runner evaluate` and the mode `eval` write their results to `evaluations/`, apart from the records
of training.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.config.fingerprint import (
    can_affect_weights,
    cannot_affect_weights,
    is_data_location,
)
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.task_data import declares_data
from orbit_runner.config.serialize import to_yaml
from orbit_runner.data.fingerprint import compare
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.config import parse_settings, read_settings
from orbit_runner.run_directory.data_record import fingerprint_of, read_record
from orbit_runner.run_directory.metric_records import metric_values
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.storage.staging import localize
from orbit_runner.utils.files import (
    create_directory,
    read_json_object,
    timestamp,
    to_jsonable,
    write_atomically,
)

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

_VALIDATION, _TRAINING = "task.validation_data.", "task.train_data."
_STEPS = "trainer.validation_steps"
_DROPS = f"{_VALIDATION}drop_remainder"
_BATCH_SIZE = "global_batch_size"
# Settings of the task that change neither its validation data nor what is measured on them.
_OTHER = ("task.model", "task.init_", "task.metrics", "task.class_weights")


def evaluated_data(run: Path, config: ExperimentConfig) -> dict[str, object]:
    """Returns how the data of an evaluation differ from the validation data of a run.

    These are the settings that differ, by dotted path, and as `files` the files that have changed
    since the run last started, one line each. `config` is that of the evaluation. The result is
    empty if nothing differs, or if the directory has no `config.yaml` to compare with.
    """
    changed = {path: now for path, (_, now) in changed_data_settings(run, config).items()}
    # Other settings name other files.
    files = () if changed else _changed_files(run, config)
    return {**changed, **({"files": [*files]} if files else {})}


def changed_data_settings(run: Path, config: ExperimentConfig) -> dict[str, tuple[object, object]]:
    """Returns the settings that change what is evaluated: their values in the run, and in `config`.

    Empty if the run has no `config.yaml`.
    """
    own = read_settings(run)
    now = parse_settings(to_yaml(config))
    # The contents of declared data are compared, so that they may have moved.
    compares_data = declares_data(config.task) and RunDirectory(run).data.is_file()
    return {
        path: (own.get(path), now.get(path))
        for path in (sorted({*own, *now}) if own else ())
        if own.get(path) != now.get(path)
        and _can_change_data(path, now, config, compares_data=compares_data)
    }


def _can_change_data(
    path: str,
    now: Mapping[str, object],
    config: ExperimentConfig,
    *,
    compares_data: bool,
) -> bool:
    if path == _STEPS:
        return True
    if not path.startswith("task.") or path.startswith(_OTHER) or cannot_affect_weights(path):
        return False
    if compares_data and is_data_location(path, config):
        return False
    if path.startswith(_TRAINING):
        # Not `exclude`: a part that is held out has its examples, whatever is left out of training.
        shared = getattr(config.task, "shared_data_settings", ())  # None of Model Garden's tasks.
        return path.removeprefix(_TRAINING).partition(".")[0] in shared
    if path == f"{_VALIDATION}{_BATCH_SIZE}":
        # Then it decides how many examples are evaluated.
        return bool(now.get(_DROPS)) or now.get(_STEPS) not in (None, -1)
    return path.startswith(_VALIDATION) or can_affect_weights(path, config)


def _changed_files(run: Path, config: ExperimentConfig) -> tuple[str, ...]:
    try:
        before = read_record(run)[0]
        now = fingerprint_of(localize(config).task)
    except (OSError, ValueError, RunnerError):
        return ()  # Not known, such as on a machine without the training data.
    sections = [name for name in before if name.startswith("validation_data")] or [*before]
    return compare(*({n: d[n] for n in sections if n in d} for d in (before, now))).changes


def write_evaluation(run: Path, step: int, values: Mapping[str, object]) -> Path:
    """Writes the result of an evaluation to a file of its own, with the time. Returns the path."""
    values = {"time": timestamp(), **values}
    directory = RunDirectory(run).evaluations
    create_directory(directory)
    name = f"{step}-{time.strftime('%Y%m%d-%H%M%S')}"
    number = 1
    path = directory / f"{name}.json"
    while path.exists():
        number += 1
        path = directory / f"{name}-{number}.json"
    write_atomically(path, json.dumps(to_jsonable(values), indent=2) + "\n")
    return path


def split_results(run: Path) -> dict[str, float]:
    """Returns the newest results of splits that were evaluated by name, such as `test.accuracy`."""
    results: dict[str, float] = {}
    for record in read_evaluations(run):
        (path, split), *others = record["data"].items() or [("", "")]
        if path.endswith("split") and not others:
            metrics = metric_values(record["metrics"])
            results |= {f"{split}.{name}": value for name, value in metrics.items()}
    return results


def read_evaluations(run: Path) -> Iterator[JsonObject]:
    """Yields the evaluations in `evaluations/`, the oldest first. Ignores other files."""
    evaluations = []
    for path in RunDirectory(run).evaluations.glob("*.json"):
        try:
            values = read_json_object(path)
        except (OSError, ValueError):
            continue
        if isinstance(values.get("metrics"), dict) and isinstance(values.get("data"), dict):
            evaluations.append(values)
    yield from sorted(evaluations, key=lambda values: str(values.get("time")))
