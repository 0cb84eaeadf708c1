"""Uploads the changes of a working copy during training, in an order that readers can rely on."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping

from orbit_runner.checkpoint.directory import Retention
from orbit_runner.run_directory.remote.layout import (
    CheckpointFiles,
    committed_groups,
    groups_of,
    is_appended,
    is_pointer,
    list_files,
)
from orbit_runner.run_directory.remote.working_copy import WorkingCopy, orphaned_files
from orbit_runner.storage.objects import StorageError

_POLL_SECONDS, _PAUSE_AFTER_FAILURE = 0.5, 15.0
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
        self._copy, self._store, self._holds = copy, copy.store, holds
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
        linked = {group: self._link(group, names) for group, names in new.items()}
        fresh = bool(new) or final
        others = [
            name
            for name in self._changed_files(files, files)
            if name not in in_groups and not is_pointer(name) and self._is_due(name, fresh)
        ]
        # Last, because this file makes a directory a SavedModel.
        for name in sorted(others, key=lambda name: name.endswith("saved_model.pb")):
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
        found = {}
        for name in filter(is_pointer, list_files(self._copy.path)):
            with contextlib.suppress(OSError):
                found[name] = (self._copy.path / name).read_bytes()
        return found

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

    def _link(self, group: CheckpointFiles, names: list[str]) -> bool:
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
            raise StorageError(f"{self._store.url_of(name)} is missing after it was written")
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
        found = [n for n in orphaned_files(synced) if not synced[n].is_local]
        for series in {group.series for group in committed_groups(groups)}:
            own = sorted(group for group in committed_groups(groups) if group.series == series)
            # It is unknown when a checkpoint was saved if it is only in the store.
            kept = self._rule.steps_to_keep([group.step for group in own], lambda step: None)
            old = [group for group in own if group.step not in kept]
            found += [n for g in old for n in groups[g] if not synced[n].is_local]
        return found

    def _remove(self, name: str) -> None:
        self._require_lock()
        self._store.delete(name)
        self._copy.forget(name)

    def _require_lock(self) -> None:
        if not self._holds():
            raise StorageError(
                f"cannot write {self._store.url}: the lock of the run could not be renewed"
            )
