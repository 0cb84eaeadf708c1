"""Finds the files of a dataset, or reports where it looked for them."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orbit_runner.errors import DataError


def download_hint(*names: str, data_dir: str = "") -> str:
    """Returns a text that explains how to download a missing dataset.

    `names` are the names in `runner data list`. The first is used in the command; the others are
    listed as alternatives.
    """
    directory = data_dir or f"data/{names[0]}"
    others = f" (or {', '.join(names[1:])})" if names[1:] else ""
    return f"to download the dataset, run `runner data get {names[0]} --dir={directory}`{others}"


def data_folder(source: str, data_dir: str, hint: str) -> Path:
    """Returns the directory of a dataset, with `~` expanded.

    Raises `DataError` if `data_dir` is empty or not a directory. The message ends with `hint`.
    """
    if not data_dir:
        raise DataError(f"{source}: no directory is set; {hint}", code="not-set")
    directory = Path(data_dir).expanduser()
    if not os.path.isdir(directory):
        raise DataError(f"{source}: directory {directory} not found; {hint}", code="missing-file")
    return directory


def named_files(source: str, data_dir: str, input_path: Sequence[str]) -> list[Path]:
    """Returns the files of `input_path` in that order, with the matches of a pattern sorted.

    Relative names start in `data_dir`, or in the working directory if it is empty. Raises
    `DataError` if a name or pattern matches no file, or if a file is listed twice.
    """
    paths: list[Path] = []
    for name in input_path:
        pattern = Path(data_dir).expanduser() / Path(name).expanduser()
        matches = [pattern] if os.path.isfile(pattern) else _glob(pattern)
        if not matches:
            raise DataError(
                f"{source}: no file matches {pattern}", field="input_path", code="missing-file"
            )
        paths += matches
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise DataError(f"{source}: {twice} is listed twice", field="input_path", code="set-twice")
    return paths


def patterns(path: Any) -> list[str]:
    """Returns the file patterns of an `input_path`, also of Model Garden's experiments.

    It can be a comma-separated string, or a (nested) list or mapping of such strings.
    """
    if isinstance(path, str):
        return [part.strip() for part in path.split(",") if part.strip()]
    values = path.values() if hasattr(path, "values") else path or ()
    return [pattern for value in values for pattern in patterns(value)]


def is_local(path: str) -> bool:
    """Returns whether a path is a local path, and not a URL such as `gs://…`."""
    return "://" not in path


def _glob(pattern: Path) -> list[Path]:
    paths = sorted(Path(match) for match in glob.glob(os.fspath(pattern), recursive=True))
    return [path for path in paths if os.path.isfile(path)]
