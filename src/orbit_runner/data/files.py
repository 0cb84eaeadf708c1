"""Finds the files of a data set, or says where they were looked for."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from orbit_runner.errors import DataError

SPLITS = ("train", "test", "all")


def getting(*names: str, data_dir: str = "") -> str:
    """Words how to get a data set that is missing.

    Args:
        names: What `runner data list` calls it; more than one where several fit.
        data_dir: The folder that was set.

    Returns:
        The command, the alternatives after it.
    """
    folder = data_dir or f"data/{names[0]}"
    others = "".join(f" (or {name})" for name in names[1:])
    return f"`runner data get {names[0]} --dir={folder}`{others} gets it"


def check_split(source: str, split: str) -> None:
    """Checks the name of a split.

    Args:
        source: Name of the data set, for the message.
        split: The name.

    Raises:
        DataError: It is none of `SPLITS`.
    """
    if split not in SPLITS:
        raise DataError(
            f"{source}: got split {split!r}, expected one of {', '.join(SPLITS)}", field="split"
        )


def data_folder(source: str, data_dir: str, hint: str) -> Path:
    """Opens the folder of a data set.

    Args:
        source: Name of the data set, for the message.
        data_dir: The setting; `~` stands for the home folder.
        hint: How to get the data.

    Returns:
        The folder, which exists.

    Raises:
        DataError: It is not set, or is no folder.
    """
    if not data_dir:
        raise DataError(f"{source}: no folder is set; {hint}")
    folder = Path(data_dir).expanduser()
    if not os.path.isdir(folder):
        raise DataError(f"{source}: no folder {folder}; {hint}")
    return folder


def named_files(source: str, data_dir: str, input_path: Sequence[str]) -> list[Path]:
    """Finds the files that `input_path` names.

    Args:
        source: Name of the data set, for the message.
        data_dir: Where relative names are looked up; the working folder if empty.
        input_path: Names or glob patterns.

    Returns:
        The files in the order of the names, those of one pattern sorted.

    Raises:
        DataError: A name or pattern has no file, or a file is named twice.
    """
    found: list[Path] = []
    for name in input_path:
        pattern = Path(data_dir).expanduser() / Path(name).expanduser()
        matches = [pattern] if os.path.isfile(pattern) else _glob(pattern)
        if not matches:
            raise DataError(f"{source}: no file matches {pattern}", field="input_path")
        found += matches
    twice = next((path for path in found if found.count(path) > 1), None)
    if twice is not None:
        raise DataError(f"{source}: {twice} is named twice", field="input_path")
    return found


def _glob(pattern: Path) -> list[Path]:
    paths = sorted(Path(match) for match in glob.glob(os.fspath(pattern), recursive=True))
    return [path for path in paths if os.path.isfile(path)]
