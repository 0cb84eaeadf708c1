"""The local working copy of a run whose directory is in an object store, and its uploads.

Changes are uploaded during training in an order that readers can rely on: files that belong
together are a group, and a group is complete before another file refers to it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from orbit_runner.checkpoint.directory import CheckpointFolder, Retention
from orbit_runner.errors import format_count
from orbit_runner.registry import EXPORT_FORMATS
from orbit_runner.storage.lease import NAME as LOCK
from orbit_runner.storage.objects import ObjectInfo, ObjectStore, StorageError
from orbit_runner.storage.paths import local_run_directory
from orbit_runner.storage.staging import TransferProgress
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
        self.store = store
        self.path = local_run_directory(store.url)
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
            files = format_count(len(unsent), "file")
            verb = "was" if len(unsent) == 1 else "were"
            _note(
                f"note: {self.path} has {files} that {verb} not uploaded; the run continues from "
                "this copy"
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
        content = json.loads(path.read_text(encoding="utf-8"))
        objects = {name: SyncedFile(*entry) for name, entry in content["objects"].items()}
        return str(content["owner"]), objects
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


_CHECKPOINT_FILE = re.compile(r"((?:.*/)?[^/]+)-(\d+)\.(index|json|data-\d+-of-\d+)")
_EVENTS = "events.out.tfevents"
POINTER = "checkpoint"
# Files that a process appends to. They are uploaded with each checkpoint, and periodically.
_APPENDED = (".jsonl", ".stderr", ".log")


@dataclasses.dataclass(frozen=True, order=True)
class CheckpointFiles:
    """The files of one checkpoint, which is complete once its index exists."""

    step: int
    series: str  # Its path without step and suffix, such as `checkpoints/ckpt`.

    @property
    def index(self) -> str:
        """The name of the index file, which completes the checkpoint."""
        return f"{self.series}-{self.step}.index"

    def sort_files(self, names: Iterable[str]) -> list[str]:
        """Returns the checkpoint's files in the order in which they are written: the index last."""
        return sorted(names, key=lambda name: (name == self.index, name.endswith(".json"), name))


def group_of(name: str) -> CheckpointFiles | None:
    """Returns the checkpoint that a file belongs to; None for any other file.

    `name` is relative to the run directory.
    """
    match = _CHECKPOINT_FILE.fullmatch(name)
    return CheckpointFiles(int(match[2]), match[1]) if match else None


def groups_of(names: Iterable[str]) -> dict[CheckpointFiles, list[str]]:
    """Returns the checkpoints among files, complete or not, with the names of their files.

    A JSON file alone, such as `metrics-300.json`, is not a checkpoint.
    """
    groups: dict[CheckpointFiles, list[str]] = {}
    for name in names:
        group = group_of(name)
        if group is not None:
            groups.setdefault(group, []).append(name)
    return {
        group: group.sort_files(files)
        for group, files in sorted(groups.items())
        if any(not name.endswith(".json") for name in files)
    }


def committed_groups(
    groups: Mapping[CheckpointFiles, list[str]],
) -> dict[CheckpointFiles, list[str]]:
    """Returns the checkpoints that have an index."""
    return {group: files for group, files in groups.items() if group.index in files}


def is_best(group: CheckpointFiles) -> bool:
    """Returns whether a checkpoint is one of the best; the newest of these may not be the best."""
    return PurePosixPath(group.series).name == "best"


def is_pointer(name: str) -> bool:
    """Returns whether a file names the newest checkpoint of its directory."""
    return PurePosixPath(name).name == POINTER


def is_appended(name: str) -> bool:
    """Returns whether processes append to a file, so that it changes continually."""
    return name.endswith(_APPENDED) or _EVENTS in name


def exported_models(names: Iterable[str]) -> set[str]:
    """Returns the files that are the model of an export."""
    files = {entry.load().file for entry in EXPORT_FORMATS.registered()}
    return {name for name in names if "/" in name and PurePosixPath(name).name in files}


def optional_files(names: Iterable[str]) -> set[str]:
    """Returns the files that a run can be resumed without: summaries, exports, logs."""
    names = [*names]
    exports = {PurePosixPath(name).parent for name in exported_models(names)}
    return {
        name
        for name in names
        if _EVENTS in name
        or name.startswith(("logs/", "checkpoints/damaged/"))
        or not exports.isdisjoint(PurePosixPath(name).parents)
    }


def list_files(directory: Path) -> dict[str, os.stat_result]:
    """Returns the files of a run directory that belong to the run, by relative path.

    Two consecutive listings must agree: during a listing, a checkpoint may appear in a part that
    has already been read, and the previous one may disappear from a part that has not.
    """
    before = _list_once(directory)
    while True:
        now = _list_once(directory)
        if now.keys() == before.keys():
            return now
        before = now


def _list_once(directory: Path) -> dict[str, os.stat_result]:
    stats = {}
    for above, directories, files in os.walk(directory):
        # Names that begin with a dot are local to this machine: locks, temporary files.
        directories[:] = [name for name in directories if not name.startswith(".")]
        for file in files:
            if file.startswith(".") or ".tempstate" in file:
                continue
            path = Path(above, file)
            try:
                stats[path.relative_to(directory).as_posix()] = path.stat()
            except OSError:
                continue  # It has just been removed.
    return stats


_POLL_SECONDS = 0.5
_PAUSE_AFTER_FAILURE = 15.0
_APPENDED_SECONDS = 30.0
_NOTICE_SECONDS = 2.0
# Larger files are not read into memory.
_LARGE_BYTES = 64 * 2**20

_Files = Mapping[str, os.stat_result]


class Mirror:
    """Keeps the objects of a run equal to its working copy.

    Each pass uploads, in this order: the files that belong to no checkpoint; for each new
    checkpoint the data, then the record, then the index, which completes it; the files that name
    the newest checkpoint. Then it deletes the objects of removed files. So a reader never finds an
    index without its data, or the name of a checkpoint without the checkpoint, and an old
    checkpoint is deleted only after its successor is uploaded.

    `holds` returns whether this process still has the lock of the run. `keep` is the number of
    checkpoints to keep in the store, or the rule of the run; None keeps all.
    """

    def __init__(
        self, copy: WorkingCopy, holds: Callable[[], bool], *, keep: int | Retention | None
    ) -> None:
        self._copy = copy
        self._store = copy.store
        self._holds = holds
        self._rule = keep if isinstance(keep, Retention) else Retention(max_to_keep=keep)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="run-upload", daemon=True)
        self._uploaded_at: dict[str, float] = {}
        self._failing = False

    def start(self) -> None:
        """Starts the thread that uploads changes."""
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread after the upload of the current object."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def finish(self) -> None:
        """Stops the thread and uploads the rest; raises `StorageError` if an upload fails."""
        self.stop()
        self._stop.clear()
        noticed = threading.Timer(_NOTICE_SECONDS, self._report_waiting)
        noticed.daemon = True
        noticed.start()
        try:
            while self._sync_once(final=True):
                pass
        finally:
            noticed.cancel()

    def _report_waiting(self) -> None:
        print(f"uploading the last files to {self._store.url}", file=sys.stderr)

    def _run(self) -> None:
        while not self._stop.is_set():
            pause = _POLL_SECONDS
            try:
                if self._holds():
                    self._sync_once(final=False)
                    self._report_recovery()
            except StorageError as error:
                self._report_failure(error)
                pause = _PAUSE_AFTER_FAILURE
            self._stop.wait(pause)

    def _report_failure(self, error: StorageError) -> None:
        if not self._failing:
            print(
                f"warning: {error}\n  training continues in {self._copy.path}; "
                "uploads will be retried",
                file=sys.stderr,
            )
        self._failing = True

    def _report_recovery(self) -> None:
        if self._failing:
            print(f"note: uploads to {self._store.url} work again", file=sys.stderr)
        self._failing = False

    def _sync_once(self, *, final: bool) -> bool:
        """Updates the store to match the working copy; returns whether anything changed."""
        # Read before the files are listed, so that the checkpoints that they name are listed, too.
        pointers = self._read_pointers()
        files = list_files(self._copy.path)
        groups = groups_of(files)
        in_groups = {name for names in groups.values() for name in names}
        new = {g: n for g, n in committed_groups(groups).items() if self._changed_files(n, files)}
        linked = {group: self._link(names) for group, names in new.items()}
        fresh = bool(new) or final
        others = [
            name
            for name in self._changed_files(files, files)
            if name not in in_groups and not is_pointer(name) and self._is_due(name, fresh)
        ]
        # Models last, because a model makes a directory an export.
        models = exported_models(others)
        for name in sorted(others, key=lambda name: name in models):
            self._upload_file(name)
        for group, names in new.items():
            if linked[group]:
                self._upload_group(group, names)
        changed_pointers = self._changed_files(pointers, files)
        for name in changed_pointers:
            self._write(name, pointers[name], files[name])
        deleted = all(linked.values()) and self._delete(files)
        return bool(others or new or changed_pointers or deleted)

    def _read_pointers(self) -> dict[str, bytes]:
        pointers = {}
        for name in filter(is_pointer, list_files(self._copy.path)):
            with contextlib.suppress(OSError):
                pointers[name] = (self._copy.path / name).read_bytes()
        return pointers

    def _changed_files(self, names: Mapping[str, object] | list[str], files: _Files) -> list[str]:
        synced = self._copy.synced
        return [
            name
            for name in names
            if name in files and not (name in synced and synced[name].matches(files[name]))
        ]

    def _is_due(self, name: str, fresh: bool) -> bool:
        if fresh or not is_appended(name):
            return True
        return time.monotonic() - self._uploaded_at.get(name, 0.0) > _APPENDED_SECONDS

    def _link(self, names: list[str]) -> bool:
        """Creates hard links to the files of a checkpoint, so that they survive its deletion."""
        try:
            for name in names:
                target = self._copy.outbox / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)
                os.link(self._copy.path / name, target)
        except FileNotFoundError:
            self._unlink(names)
            return False
        return True

    def _unlink(self, names: list[str]) -> None:
        for name in names:
            (self._copy.outbox / name).unlink(missing_ok=True)

    def _upload_group(self, group: CheckpointFiles, names: list[str]) -> None:
        if group.index in self._copy.synced:
            # It is replaced by another of the same step, and incomplete until that is uploaded.
            self._remove(group.index)
        for name in group.sort_files(names):
            path = self._copy.outbox / name
            self._require_lock()
            self._store.upload(path, name)
            self._remember(name, path.stat())
        self._unlink(names)

    def _upload_file(self, name: str) -> None:
        path = self._copy.path / name
        try:
            stat = path.stat()
            if stat.st_size > _LARGE_BYTES:
                self._require_lock()
                self._store.upload(path, name)
                self._remember(name, stat)
                return
            with path.open("rb") as file:
                stat = os.fstat(file.fileno())
                content = file.read(stat.st_size)
        except FileNotFoundError:
            return  # It was deleted; the next pass deletes the object.
        if name.endswith(".jsonl"):
            content = content[: content.rfind(b"\n") + 1]
        self._write(name, content, stat)
        self._uploaded_at[name] = time.monotonic()

    def _write(self, name: str, content: bytes, stat: os.stat_result) -> None:
        self._require_lock()
        self._store.write(name, content)
        self._remember(name, stat)

    def _remember(self, name: str, stat: os.stat_result) -> None:
        info = self._store.info(name)
        if info is None:
            raise StorageError(
                f"{self._store.url_of(name)} is missing after it was written", code="missing-file"
            )
        self._copy.remember(name, info.version, stat)

    def _delete(self, files: _Files) -> list[str]:
        synced = self._copy.synced
        gone = [name for name, entry in synced.items() if entry.is_local and name not in files]
        gone = [name for name in gone if not (self._copy.path / name).exists()]
        gone += self._surplus_files()
        for name in sorted(gone, key=lambda name: not name.endswith(".index")):
            self._remove(name)
        return gone

    def _surplus_files(self) -> list[str]:
        """Returns the files of checkpoints without a local copy that are incomplete or too old."""
        synced = self._copy.synced
        groups = groups_of(synced)
        surplus = [n for n in orphaned_files(synced) if not synced[n].is_local]
        for series in {group.series for group in committed_groups(groups)}:
            own = sorted(group for group in committed_groups(groups) if group.series == series)
            # It is unknown when a checkpoint was saved if it is only in the store.
            kept = self._rule.steps_to_keep([group.step for group in own], lambda step: None)
            old = [group for group in own if group.step not in kept]
            surplus += [n for g in old for n in groups[g] if not synced[n].is_local]
        return surplus

    def _remove(self, name: str) -> None:
        self._require_lock()
        self._store.delete(name)
        self._copy.forget(name)

    def _require_lock(self) -> None:
        if not self._holds():
            raise StorageError(
                f"cannot write {self._store.url}: the lock of the run could not be renewed",
                code="not-writable",
            )
