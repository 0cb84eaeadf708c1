"""Evaluations of a run that are not part of its training, and the data that they measure.

Only evaluations of a run's own validation data, as its `config.yaml` describes them, are comparable
with each other. `runner evaluate` writes its results to `evaluations/`, apart from the records of
training.
"""

from __future__ import annotations

import dataclasses
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
from orbit_runner.config.serialize import inline_yaml, to_yaml
from orbit_runner.data.fingerprint import compare
from orbit_runner.errors import RunnerError, format_list
from orbit_runner.run_directory.config_values import parse_settings, read_settings
from orbit_runner.run_directory.data_record import fingerprint_of, read_record
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.storage.staging import localize
from orbit_runner.utils.files import (
    create_directory,
    parse_json,
    read_file,
    read_json_object,
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
FILES = "files"


@dataclasses.dataclass(frozen=True)
class OtherData:
    """How the data of an evaluation differ from the validation data of the run.

    Attributes:
        settings: The value of each setting that differs, by dotted path.
        own: The value of each of these settings in the run; None if the run does not have it.
        files: The files that have changed since the run last started, one line each.
    """

    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)
    own: Mapping[str, object] = dataclasses.field(default_factory=dict)
    files: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.settings or self.files)

    def as_dict(self) -> dict[str, object]:
        """Returns the settings by path, and the lines about files as `files`."""
        return {**self.settings, **({FILES: list(self.files)} if self.files else {})}

    def lines(self) -> list[str]:
        """Returns a line for each difference."""
        changes = [
            f"{path}: {inline_yaml(value)}, in the run {inline_yaml(self.own[path])}"
            for path, value in self.settings.items()
        ]
        return [*changes, *self.files]

    def note(self) -> str:
        """Returns what a user needs to know about such an evaluation."""
        return (
            "note: this evaluation is not of the validation data of the run:\n"
            f"{format_list(self.lines())}\n"
            "  it counts neither for the best checkpoint nor in curves and comparisons"
        )


def find_other_data(
    run: Path, config: ExperimentConfig, *, compares_files: bool = True
) -> OtherData:
    """Returns how the data of an evaluation differ from the validation data of a run.

    `config` is that of the evaluation. The result is empty if they are the same, or if the
    directory has no `config.yaml`, so that there is nothing to compare with.
    """
    own = read_settings(run)
    now = parse_settings(to_yaml(config))
    if not own:
        return OtherData()
    compares_data = _compares_data(run, config)
    changed = [
        path
        for path in sorted({*own, *now})
        if own.get(path) != now.get(path)
        and _can_change_data(path, now, config, compares_data=compares_data)
    ]
    return OtherData(
        settings={path: now.get(path) for path in changed},
        own={path: own.get(path) for path in changed},
        # Other settings name other files.
        files=_changed_files(run, config) if compares_files and not changed else (),
    )


def _compares_data(run: Path, config: ExperimentConfig) -> bool:
    """Returns whether the contents of the data are compared, so that they may have moved."""
    return declares_data(config.task) and RunDirectory(run).data.is_file()


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


def set_evaluations_apart(records: Path, now: OtherData) -> None:
    """Marks the evaluations in `metrics.jsonl` as those of other data: of what was before `now`."""
    lines = []
    data = {**now.own, **({FILES: list(now.files)} if now.files else {})}
    for line in read_file(records).decode(errors="replace").splitlines():
        record = parse_json(line)
        if isinstance(record, dict) and record.get("split") == "validation":
            line = json.dumps({**record, "split": "evaluation", "data": to_jsonable(data)})
        lines.append(f"{line}\n")
    write_atomically(records, "".join(lines))


def write_evaluation(run: Path, step: int, values: Mapping[str, object]) -> Path:
    """Writes the result of an evaluation to a file of its own. Returns the path."""
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
