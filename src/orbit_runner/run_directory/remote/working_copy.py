"""The local working copy of a run whose directory is in an object store."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.run_directory.remote.layout import (
    CheckpointFiles,
    committed_groups,
    groups_of,
    is_best,
    list_files,
    optional_files,
)
from orbit_runner.storage.cache import local_run_directory
from orbit_runner.storage.lease import NAME as LOCK
from orbit_runner.storage.objects import ObjectInfo, ObjectStore
from orbit_runner.storage.progress import TransferProgress
from orbit_runner.utils.files import write_atomically


@dataclasses.dataclass(frozen=True)
class SyncedFile:
    """The version of an object, and the state of its local file when the two were equal."""

    version: str
    size: int = -1  # Of the local file; -1 if there was only the object.
    mtime_ns: int = 0

    @property
    def is_local(self) -> bool:
        """Whether there was a local file."""
        return self.size >= 0

    def matches(self, stat: os.stat_result) -> bool:
        """Returns whether a local file is unchanged, by size and modification time."""
        return (self.size, self.mtime_ns) == (stat.st_size, stat.st_mtime_ns)


class WorkingCopy:
    """The files of a run on this machine, and which of them the store has.

    `outbox` is a directory of the same file system, for files that wait to be uploaded.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.store, self.path = store, local_run_directory(store.url)
        self.outbox = self.path.parent / "outbox"
        self._index = self.path.parent / "synced.json"
        self._owner, self.synced = _read_index(self._index)

    def remember(self, name: str, version: str, stat: os.stat_result | None) -> None:
        """Records that an object and its local file are equal; `stat` is None without a file."""
        entry = SyncedFile(version)
        if stat is not None:
            entry = SyncedFile(version, stat.st_size, stat.st_mtime_ns)
        self.synced[name] = entry
        self._save()

    def forget(self, name: str) -> None:
        """Records that an object does not exist anymore."""
        self.synced.pop(name, None)
        self._save()

    def _save(self) -> None:
        entries = {name: dataclasses.astuple(entry) for name, entry in self.synced.items()}
        write_atomically(self._index, json.dumps({"owner": self._owner, "objects": entries}))

    def unsent_files(self) -> list[str]:
        """Returns the local files that were added, changed or removed since their last upload."""
        files = list_files(self.path)
        changed = [name for name, stat in files.items() if not self._is_synced(name, stat)]
        removed = [n for n, entry in self.synced.items() if entry.is_local and n not in files]
        return [*changed, *removed]

    def _is_synced(self, name: str, stat: os.stat_result) -> bool:
        entry = self.synced.get(name)
        return entry is not None and entry.matches(stat)

    def prepare(self, owner: str, previous: str) -> None:
        """Prepares the working copy for training, from the newest state here and in the store.

        If this working copy was the last to train, it is at least as new as the store, and is kept.
        Otherwise, the store is downloaded, and a working copy with changes that were not uploaded
        is renamed. `owner` and `previous` are the current and the previous owner of the lock;
        `previous` is "" if there was no owner. Raises `StorageError` if the store cannot be read.
        """
        shutil.rmtree(self.outbox, ignore_errors=True)
        self.outbox.mkdir(parents=True)
        self.path.mkdir(parents=True, exist_ok=True)
        objects = {name: info for name, info in self.store.list().items() if name != LOCK}
        if previous and previous == self._owner:
            self._adopt(objects)
        else:
            if self.unsent_files() and list_files(self.path):
                self._set_aside()
            self._download(objects)
        self._owner = owner
        self._save()

    def _adopt(self, objects: Mapping[str, ObjectInfo]) -> None:
        """Keeps the local files, and records which objects the store has."""
        known = {name: self.synced.get(name) for name in objects}
        self.synced = {
            name: entry if entry and entry.version == objects[name].version
            # Uploaded by a process that was killed before it could record that.
            else SyncedFile(objects[name].version)
            for name, entry in known.items()
        }  # fmt: skip
        unsent = [
            name for name, stat in list_files(self.path).items() if not self._is_synced(name, stat)
        ]
        if unsent:
            _note(
                f"note: {self.path} has {len(unsent)} files that were not uploaded; the run "
                "continues from this copy"
            )

    def _set_aside(self) -> None:
        aside = self.path.with_name(f"{self.path.name}.{time.strftime('%Y%m%d-%H%M%S')}")
        self.path.replace(aside)
        self.path.mkdir()
        _note(
            f"note: {self.store.url} has changed since this machine last used it; "
            "its version is used\n"
            f"  the working copy of this machine was moved to {aside}"
        )

    def _download(self, objects: Mapping[str, ObjectInfo]) -> None:
        shutil.rmtree(self.path)
        self.path.mkdir()
        self.synced = {name: SyncedFile(info.version) for name, info in objects.items()}
        groups = groups_of(objects)
        in_groups = {name for files in groups.values() for name in files}
        small = [name for name in objects if name not in in_groups | optional_files(objects)]
        self._fetch(small, objects)
        whole = committed_groups(groups)
        for series in sorted({group.series for group in whole}):
            own = [group for group in whole if group.series == series]
            if is_best(own[0]):
                self._fetch([name for group in own for name in whole[group]], objects)
            else:
                self._fetch_newest(own, whole, objects)

    def _fetch_newest(
        self,
        groups: list[CheckpointFiles],
        files: Mapping[CheckpointFiles, list[str]],
        objects: Mapping[str, ObjectInfo],
    ) -> None:
        """Downloads the checkpoints of a series, newest first, until one is not damaged."""
        for group in sorted(groups, reverse=True):
            self._fetch(files[group], objects)
            path = self.path / group.series
            if not CheckpointFolder(path.parent, name=path.name).damage(group.step):
                return

    def _fetch(self, names: list[str], objects: Mapping[str, ObjectInfo]) -> None:
        size = sum(objects[name].size for name in names)
        progress = TransferProgress(f"downloading {self.store.url}", len(names), size)
        for name in names:
            path = self.path / name
            self.store.download(name, path)
            stat = path.stat()
            self.synced[name] = SyncedFile(objects[name].version, stat.st_size, stat.st_mtime_ns)
            progress.add(stat.st_size)


def _read_index(path: Path) -> tuple[str, dict[str, SyncedFile]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        objects = {name: SyncedFile(*entry) for name, entry in found["objects"].items()}
        return str(found["owner"]), objects
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "", {}


def orphaned_files(objects: Mapping[str, object]) -> Iterator[str]:
    """Yields the objects of checkpoints that were not completely uploaded."""
    groups = groups_of(objects)
    for group, names in groups.items():
        if group not in committed_groups(groups):
            yield from names


def _note(text: str) -> None:
    print(text, file=sys.stderr)
