"""What a run learned from its training data: the files in `RUN/assets/`. No TensorFlow.

A task asks its `Assets` for each of them by name. A new run computes them, and writes them before
its first step. All later starts and all commands read them, so a trained model keeps its classes
and its vocabulary when the data changes or is gone. The record of each checkpoint has their digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from orbit_runner.errors import RunnerError, SettingError, first_line
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.storage.paths import local_run_directory
from orbit_runner.utils.files import parse_json, read_file, set_aside, write_atomically
from orbit_runner.utils.log import note

_Value = TypeVar("_Value")


class Assets:
    """The files that a run computed from its training data, by name.

    Args:
        run: The run directory, or None if there is none. Assets are then computed when they are
            asked for.
    """

    def __init__(self, run: str | os.PathLike[str] | None = None) -> None:
        self._run = None if run is None else RunDirectory(local_run_directory(run))
        self._files: dict[str, bytes] = {}
        self._stored: frozenset[str] = frozenset()
        self._is_new_run = False
        if self._run is not None:
            self._files = _read_files(self._run.assets)
            self._stored = frozenset(self._files)

    def discard(self) -> None:
        """Forgets the assets of the run directory, because a new run starts in it.

        Must be called before the task reads any of them.
        """
        self._files = {}
        self._stored = frozenset()
        self._is_new_run = True

    def has(self, name: str) -> bool:
        """Returns whether the run has an asset."""
        return name in self._files

    def get(
        self,
        name: str,
        compute: Callable[[], bytes],
        decode: Callable[[Any], _Value] = lambda content: content,
    ) -> _Value:
        """Returns the value of an asset, the same for all later starts of the run.

        Args:
            name: The name of its file, without a directory.
            compute: Returns the content, from the training data. Called only if the run does not
                have the asset yet.
            decode: Returns the value of a content; by default the content itself.

        Raises:
            RunnerError: The file of the run is damaged.
        """
        if name not in self._files:
            self._files[name] = compute()
        try:
            return decode(self._files[name])
        except RunnerError:
            raise
        except Exception as error:  # NumPy and zipfile raise a dozen kinds of errors.
            path = name if self._run is None else self._run.assets / name
            reason = f"it has no {error}" if isinstance(error, KeyError) else first_line(error)
            raise RunnerError(
                f"{path}: is damaged: {reason}\nrestore it from a copy of the run",
                code="damaged-file",
            ) from None

    def get_json(
        self,
        name: str,
        compute: Callable[[], object],
        decode: Callable[[Any], _Value] = lambda value: value,
    ) -> _Value:
        """Returns the value of an asset that is stored as JSON.

        Args:
            name: The name of its file, without a directory.
            compute: Returns what is stored, which JSON can represent.
            decode: Returns the value of what is read; by default, it is what is read from JSON,
                with lists in place of tuples.

        Raises:
            RunnerError: The file of the run is damaged.
        """
        return self.get(
            name,
            lambda: encode_json(compute()),
            lambda content: decode(parse_json(content.decode())),
        )

    def differences(self, other: Assets) -> list[str]:
        """Returns the files that differ between two runs; those that only one has are left out."""
        names = sorted(self._files.keys() & other._files.keys())
        return [name for name in names if self._files[name] != other._files[name]]

    @property
    def digest(self) -> str:
        """The SHA-256 of all assets as hexadecimal digits; "" if there are none."""
        if not self._files:
            return ""
        listing = {
            name: hashlib.sha256(content).hexdigest()
            for name, content in sorted(self._files.items())
        }
        return hashlib.sha256(encode_json(listing)).hexdigest()

    def write(self) -> None:
        """Writes the assets to the run directory, unless they are there. Only the chief calls it.

        A new run renames a directory with other files, which an interrupted start may have left.
        """
        if self._run is None:
            return
        directory = self._run.assets
        stored_files = _read_files(directory) if self._is_new_run else {}
        if any(self._files.get(name) != content for name, content in stored_files.items()):
            note(f"note: the files of an earlier start are kept in {set_aside(directory, 'old')}")
        for name in self._files.keys() - self._stored:
            write_atomically(directory / name, self._files[name])
        self._stored = frozenset(self._files)
        self._is_new_run = False


def _read_files(directory: Path) -> dict[str, bytes]:
    if not directory.is_dir():
        return {}
    paths = (path for path in sorted(directory.iterdir()) if path.is_file())
    return {path.name: read_file(path) for path in paths if not path.name.startswith(".")}


def copy_assets(source: Path, target: Path) -> None:
    """Copies the assets of a run to the directory of another that continues it, or of an export."""
    source_assets = RunDirectory(source).assets
    target_assets = RunDirectory(target).assets
    if source_assets.is_dir():
        shutil.copytree(source_assets, target_assets, dirs_exist_ok=True)


def encode_json(value: object) -> bytes:
    """Returns a value as JSON text in UTF-8."""
    return json.dumps(value, ensure_ascii=False, indent=1).encode() + b"\n"


def with_tuples(value: Any) -> Any:
    """Returns what JSON contains with tuples in place of lists, as in frozen dataclasses."""
    if isinstance(value, list):
        return tuple(map(with_tuples, value))
    if isinstance(value, dict):
        return {name: with_tuples(item) for name, item in value.items()}
    return value


def other_data_error(section: str, got: str, trained: str) -> SettingError:
    """Returns the error for data of a section that are unlike those that the run was trained on."""
    return SettingError(
        f"task.{section}.source",
        f"got {got}, but the run was trained on {trained}\n"
        "use data like those of the training, or another --model_dir",
        code="data-mismatch",
    )


def assets_of(task: object) -> Assets | None:
    """Returns the assets of a task; None if it has none, like Model Garden's tasks."""
    assets = getattr(task, "assets", None)
    return assets if isinstance(assets, Assets) else None


def digest_of(task: object) -> str:
    """Returns the digest of a task's assets; "" if it has none."""
    assets = assets_of(task)
    return "" if assets is None else assets.digest
