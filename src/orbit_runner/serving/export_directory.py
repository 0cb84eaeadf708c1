"""Directories of exported models. Imports no tensorflow."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.config.schema.trainer import FORMAT_NAMES, SAVED_MODEL
from orbit_runner.errors import RunnerError, unknown_name_message
from orbit_runner.serving.formats import saved_model
from orbit_runner.serving.formats.base import export_formats
from orbit_runner.utils.files import read_json_object

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

CONFIG = "config.yaml"
RECORD = "export.json"
LABELS = "labels.txt"
_DEFAULT_DIRECTORY = "export"
_EXPORT_NAME = re.compile(rf"(\d+)(?:-({'|'.join(FORMAT_NAMES)}))?")
_LARGEST_RECORD = 1_000_000  # bytes


def find_export(path: Path) -> Path | None:
    """Returns the directory of a SavedModel, or None if there is none.

    `path` is that directory, or one with a subdirectory per step, of which the last one is used.
    """
    if is_saved_model(path):
        return path
    steps = [entry for entry in path.glob("*") if entry.name.isdecimal() and is_saved_model(entry)]
    return max(steps, key=lambda entry: int(entry.name), default=None)


def is_saved_model(path: Path) -> bool:
    """Returns whether a directory is an export that predicts, not a file with the network alone."""
    return (path / saved_model.FORMAT.file).is_file()


def export_name(step: int, name: str) -> str:
    """Returns the name of the directory of an export: `200`, or `200-litert` for other formats."""
    return str(step) if name == SAVED_MODEL else f"{step}-{name}"


def parse_formats(text: str) -> tuple[str, ...]:
    """Returns the formats in a comma-separated text; raises `RunnerError` if one is unknown.

    Also raises it if a format requires a package that is not installed.
    """
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if name not in FORMAT_NAMES:
            raise RunnerError(
                unknown_name_message("format", name, FORMAT_NAMES),
                path="--format",
                code="not-allowed",
            )
    if problem := missing_packages(names):
        raise RunnerError(problem, path="--format", code="not-supported")
    return names


def missing_packages(names: Sequence[str]) -> str:
    """Returns which packages formats require that are not installed; "" if all are."""
    formats = export_formats()
    for name in names:
        for package in formats[name].packages if name in formats else ():
            if importlib.util.find_spec(package) is None:
                return (
                    f"{name} requires the package {package}, which is not installed\n"
                    f"install it: pip install 'orbit-runner[{name}]'"
                )
    return ""


def read_exports(run: Path, subdirectory: str) -> list[JsonObject]:
    """Returns the records of the exports in a run directory, in the order of steps and formats.

    They are in `subdirectory` (`trainer.export_subdir`, which may be empty) and in `export`, where
    `runner export` writes by default. Records that cannot be read are left out.
    """
    names = dict.fromkeys(filter(None, (subdirectory, _DEFAULT_DIRECTORY)))
    records = []
    for name in names:
        for path in (run / name).glob("*"):
            matched = _EXPORT_NAME.fullmatch(path.name)
            if matched:
                record = read_export_record(path)
                kind = matched[2] or SAVED_MODEL
                order = int(matched[1]), FORMAT_NAMES.index(kind)
                records.append(
                    (order, {**record, "format": kind, "directory": f"{name}/{path.name}"})
                )
    return [record for _, record in sorted(records, key=lambda entry: entry[0]) if "step" in record]


def read_export_record(path: Path) -> JsonObject:
    """Returns the record of an export; {} if it cannot be read."""
    for place in (path / RECORD, path / saved_model.EXTRA / RECORD):
        try:
            if place.stat().st_size <= _LARGEST_RECORD:
                return read_json_object(place)
        except (OSError, ValueError, RecursionError):
            continue
    return {}
