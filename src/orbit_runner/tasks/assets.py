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
from typing import Any

from orbit_runner.errors import RunnerError, first_line
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.storage.paths import local_run_directory
from orbit_runner.utils.cache import write_shared_file
from orbit_runner.utils.files import parse_json, read_file, read_json_object


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
        # Raises an error if the data of the run has changed. Called before an asset is computed for
        # a run that has none, which versions without assets have made.
        self.require_unchanged_data: Callable[[], None] = _accept_data
        if self._run is not None and self._run.assets.is_dir():
            self._files = {
                path.name: read_file(path)
                for path in sorted(self._run.assets.iterdir())
                if not path.name.startswith(".")
            }
            self._stored = frozenset(self._files)

    def discard(self) -> None:
        """Forgets the assets of the run directory, because a new run starts in it.

        Must be called before the task reads any of them.
        """
        self._files = {}
        self._stored = frozenset()
        self._is_new_run = True

    def has(self, name: str) -> bool:
        """Returns whether the run has an asset, or one of an earlier version."""
        return name in self._files or self.file_of_earlier_version(name) is not None

    def get(
        self,
        name: str,
        compute: Callable[[], bytes],
        earlier: Callable[[], bytes | None] = lambda: None,
    ) -> bytes:
        """Returns the content of an asset.

        Args:
            name: The name of its file, without a directory.
            compute: Returns the content, from the training data. Called only if the run does not
                have the asset yet.
            earlier: Returns the content that an earlier version of this package wrote to the run,
                or None.

        Returns:
            The content; the same for all later starts of the run.

        Raises:
            RunnerError: The run has trained, does not have the asset, and its data has changed.
        """
        if name not in self._files:
            content = None if self._is_new_run else earlier()
            if content is None:
                if not self._is_new_run:
                    self.require_unchanged_data()
                content = compute()
            self._files[name] = content
        return self._files[name]

    def get_json(
        self, name: str, compute: Callable[[], object], earlier: Callable[[], object] = lambda: None
    ) -> Any:
        """Returns the value of an asset that is stored as JSON.

        Args:
            name: The name of its file, without a directory.
            compute: Returns the value, which JSON can represent.
            earlier: Returns the value that an earlier version of this package wrote, or None.

        Returns:
            The value as it is read from JSON, with lists in place of tuples.

        Raises:
            RunnerError: The file of the run is damaged.
        """

        def encode_earlier() -> bytes | None:
            value = earlier()
            return None if value is None else encode_json(value)

        content = self.get(name, lambda: encode_json(compute()), encode_earlier)
        try:
            return parse_json(content.decode())
        except ValueError as error:
            raise self.damaged(name, error) from None

    def damaged(self, name: str, error: Exception) -> RunnerError:
        """Returns the error for a file that cannot be read."""
        path = name if self._run is None else self._run.assets / name
        reason = f"it has no {error}" if isinstance(error, KeyError) else first_line(error)
        return RunnerError(
            f"{path}: is damaged: {reason}\nrestore it from a copy of the run", code="damaged-file"
        )

    def file_of_earlier_version(self, name: str) -> bytes | None:
        """Returns a file of the run directory itself, where earlier versions wrote assets."""
        if self._run is None or self._is_new_run:
            return None
        try:
            return read_file(self._run.path / name)
        except OSError:
            return None

    def recorded_files(self, section: str) -> list[tuple[int, int]]:
        """Returns size in bytes and modification time in ns of the files in `data.json`.

        `section` is that of the task; [] if there is no such record.
        """
        if self._run is None:
            return []
        try:
            rows = read_json_object(self._run.data)["sections"][section]
            return [(int(row["bytes"]), int(row["mtime_ns"])) for row in rows]
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def differences(self, other: Assets) -> list[str]:
        """Returns the parts of the assets of two runs that differ, such as `images.json: labels`.

        Files that only one of them has are left out.
        """
        names = sorted(self._files.keys() & other._files.keys())
        pairs = [(name, self._files[name], other._files[name]) for name in names]
        return [part for name, left, right in pairs for part in _different_parts(name, left, right)]

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

        Those of a new run replace the whole directory, which an interrupted start may have left.
        """
        if self._run is None:
            return
        directory = self._run.assets
        if not self._is_new_run:
            for name in self._files.keys() - self._stored:
                write_shared_file(directory / name, self._files[name])
        else:
            aside = directory.with_name(f".{directory.name}-{os.getpid()}")
            for name, content in self._files.items():
                write_shared_file(aside / name, content)
            # A start that is interrupted here has no checkpoint, so the next one begins again.
            shutil.rmtree(directory, ignore_errors=True)
            if self._files:
                aside.rename(directory)
        self._stored = frozenset(self._files)
        self._is_new_run = False


def copy_assets(source: Path, target: Path) -> None:
    """Copies the assets of a run to the directory of another that continues it, or of an export."""
    source_assets = RunDirectory(source).assets
    target_assets = RunDirectory(target).assets
    if source_assets.is_dir():
        shutil.copytree(source_assets, target_assets, dirs_exist_ok=True)


def encode_json(value: object) -> bytes:
    """Returns a value as JSON text in UTF-8."""
    return json.dumps(value, ensure_ascii=False, indent=1).encode() + b"\n"


def _different_parts(name: str, left: bytes, right: bytes) -> list[str]:
    if left == right:
        return []
    try:
        values = parse_json(left.decode()), parse_json(right.decode())
    except ValueError:
        return [name]
    if not all(isinstance(value, dict) for value in values):
        return [name]
    keys = [key for key in values[0] if values[0][key] != values[1].get(key)]
    return [f"{name}: {', '.join(keys)}"]


def _accept_data() -> None:
    """Accepts the data: nothing is known about it."""


def assets_of(task: object) -> Assets | None:
    """Returns the assets of a task; None if it has none, like Model Garden's tasks."""
    assets = getattr(task, "assets", None)
    return assets if isinstance(assets, Assets) else None


def digest_of(task: object) -> str:
    """Returns the digest of a task's assets; "" if it has none."""
    assets = assets_of(task)
    return "" if assets is None else assets.digest
