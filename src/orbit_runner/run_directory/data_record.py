"""`data.json`: the files that a run has read, and whether they have changed since."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbit_runner.config.schema.task_data import task_data
from orbit_runner.config.serialize import flat_settings
from orbit_runner.data.files import is_local, patterns
from orbit_runner.data.fingerprint import (
    DataDifference,
    DataFile,
    Fingerprint,
    compare,
    describe_files,
)
from orbit_runner.errors import RunnerError, format_list
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.utils.files import parse_json, read_file, set_aside, timestamp, write_atomically

if TYPE_CHECKING:
    from orbit_runner.config.schema.base import Config
    from orbit_runner.utils.types import JsonObject

NAME = "data.json"
_FORMAT = 1
_ADVICE = (
    "restore these files, use another --model_dir, or pass --resume=override to continue with the "
    "changed data"
)
# Names of settings that contain file paths, in Model Garden's configs and in users' own tasks.
_FILE_SETTING = re.compile(r"(.*_)?(file|files|path|paths)")


class DataChanged(RunnerError):
    """Raised if the data of a run has changed."""

    code = "data-changed"


class DataRecord:
    """Compares the data of a run with its record, and writes the record.

    `now` is the fingerprint of the data. `damage` is why the record cannot be read; "" if it can,
    or if there is none. `earlier` lists the data changes that the run was resumed with.
    """

    def __init__(self, model_dir: Path, now: Fingerprint) -> None:
        self._path = RunDirectory(model_dir).data
        self.now = now
        self.damage = ""
        self.difference = DataDifference()
        self.earlier = list[dict[str, Any]]()
        try:
            before, self.earlier = read_record(model_dir)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            self.damage = f"{self._path}: cannot be read ({error})"
            return
        self.difference = compare(before, now)

    def clear_comparison(self) -> DataRecord:
        """Clears the comparison and returns `self`: a new run has no weights from earlier data."""
        self.difference = DataDifference()
        self.earlier = []
        return self

    def check(self, advice: str = _ADVICE, exit_code: int | None = None) -> None:
        """Raises `DataChanged`, with advice, if the contents of the data have changed."""
        if self.difference.changes:
            raise DataChanged(
                f"{self._path.parent}: the data changed since the run last started:\n"
                f"{format_list(self.difference.changes)}\n{advice}",
                exit_code=exit_code,
            )

    def notes(self) -> Iterator[str]:
        """Yields what the user needs to know if the run continues."""
        if self.damage:
            yield f"{self.damage}; it is unknown whether the data changed"
        if self.difference.changes:
            yield f"the data changed:\n{format_list(self.difference.changes)}"
        if self.difference.notes:
            yield (
                "these files were modified since the run last started; it is unknown whether their "
                f"contents changed:\n{format_list(self.difference.notes)}"
            )

    def write(self, step: int = 0) -> None:
        """Writes the record of a run that continues at a step."""
        if self.damage:
            set_aside(self._path)
        changes = list(self.earlier)
        if self.difference.changes:
            lines = list(self.difference.changes[:100])
            changes.append({"step": step, "date": timestamp(), "changes": lines})
        sections = {name: [row.as_dict() for row in rows] for name, rows in self.now.items()}
        values = {"format": _FORMAT, "sections": sections, "changes": changes}
        write_atomically(self._path, json.dumps(values, indent=1) + "\n")


def read_record(model_dir: Path) -> tuple[Fingerprint, list[JsonObject]]:
    """Returns the fingerprint in a run's record, and the data changes it was resumed with.

    Raises `FileNotFoundError` if the record does not exist, `OSError` if it cannot be read, and
    `ValueError` if it is damaged.
    """
    content = parse_json(read_file(RunDirectory(model_dir).data).decode())
    try:
        if content["format"] != _FORMAT:
            raise ValueError(f"unsupported format {content['format']!r}")
        sections = {
            str(name): [_parse_row(row) for row in rows]
            for name, rows in content["sections"].items()
        }
        changes = [{**change, "step": int(change["step"])} for change in content["changes"]]
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"not a data record: {error!r}") from None
    return sections, changes


def find_record(model_dir: Path) -> tuple[Fingerprint | None, list[JsonObject]]:
    """Returns what `read_record` returns; (None, []) without a record that can be read."""
    try:
        return read_record(model_dir)
    except (OSError, ValueError):
        return None, []


def difference_from_record(task: Config, model_dir: Path) -> DataDifference:
    """Returns how the data of a task, the section of a config, differs from that of a run.

    There is no difference if the run has no record that can be read. Raises `DataError` if a file
    cannot be read, `SettingError` if a setting names no file.
    """
    before, _ = find_record(model_dir)
    return DataDifference() if before is None else compare(before, fingerprint_of(task))


def _parse_row(row: JsonObject) -> DataFile:
    kinds = {"name": str, "bytes": int, "mtime_ns": int, "digest": str, "files": int}
    if not all(type(row[name]) is kind for name, kind in kinds.items()):
        raise ValueError("not a data record")
    return DataFile(**{name: row[name] for name in kinds})


def inexact_data(model_dir: Path) -> list[str]:
    """Returns the changes of the data that keep a run's config from reproducing it."""
    _, changes = find_record(model_dir)
    return [f"it resumed at step {change['step']} with different data" for change in changes]


def fingerprint_of(task: Config) -> Fingerprint:
    """Returns the fingerprint of the data of a task, the section `task` of a config.

    If the task does not declare its files, the fingerprint contains the names, sizes and
    modification times of the files that its settings name. Raises `DataError` if a file cannot be
    read.
    """
    declared = task_data(task).files()
    return dict(_named_files(task)) if declared is None else dict(declared)


def _named_files(task: Config) -> Iterator[tuple[str, list[DataFile]]]:
    settings = flat_settings(task)
    for path, value in settings.items():
        section, _, name = path.rpartition(".")
        if name == "tfds_name":
            data_dir = settings.get(f"{path.removesuffix(name)}tfds_data_dir")
            if prepared := _prepared_files(value, data_dir):
                yield section, prepared
        elif _FILE_SETTING.fullmatch(name) and (files := _matches(value)):
            yield section if name == "input_path" else path, describe_files(files)


def _matches(value: object) -> list[str]:
    try:
        named = patterns(value)
    except (TypeError, AttributeError, RecursionError):
        return []
    matches = (match for p in named if is_local(p) for match in sorted(glob.glob(p)))
    return [match for match in dict.fromkeys(matches) if os.path.isfile(match)]


def _prepared_files(name: object, data_dir: str | None) -> list[DataFile]:
    """Returns the files of a dataset that TensorFlow Datasets has prepared."""
    above = data_dir or os.environ.get("TFDS_DATA_DIR", "") or "~/tensorflow_datasets"
    if not isinstance(name, str) or not name or not is_local(above):
        return []
    root = Path(above).expanduser() / name.replace(":", "/")
    return describe_files(sorted(path for path in root.rglob("*") if path.is_file()))
