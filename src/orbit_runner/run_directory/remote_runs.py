"""Runs whose directory is in an object store: they train in a local copy."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from orbit_runner.checkpoint.directory import CHECKPOINT_FILE, save_listeners
from orbit_runner.config.schema.modes import TRAINING, check_mode
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.run_lock import describe_process, may_hold, refusal
from orbit_runner.storage.objects import ObjectStore, Stat, StorageError, file_stat
from orbit_runner.storage.paths import COPY_RUN, SHARED, PathError, local_run_directory, redact
from orbit_runner.storage.staging import copy_objects, lock_scope
from orbit_runner.utils.log import note

OWNER = ".owner"
_WHAT = "--model_dir"
# The runs that this process trains.
_own_runs: set[str] = set()


def check_remote_run(url: str, mode: str, *, is_alone: bool) -> None:
    """Raises `RunnerError` if the directory of a run cannot be a URL.

    `is_alone` is whether its process is not in a cluster.
    """
    check_mode(mode)
    if mode not in TRAINING or not is_alone:
        advice = SHARED if mode in TRAINING else f"--mode={mode} reads local runs: {COPY_RUN}"
        message = f"got {url!r}, expected a local path\n{advice}"
        raise RunnerError(message, path=_WHAT, code="bad-path")


@contextlib.contextmanager
def training_scope(url: str) -> Iterator[Path]:
    """Yields a local copy of a run directory, and uploads its changes after each save.

    At the end of the block, everything in the copy is in the store. Raises `PathError` if the URL
    cannot be used as a run directory or is not writable, `RunnerError` if another process trains
    there, and `StorageError` if the last upload fails.
    """
    store = ObjectStore(url, _WHAT)
    path = local_run_directory(url)
    owner = _acquire(store, path.parent)
    try:
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        objects = {name: info for name, info in store.list().items() if name != OWNER}
        note(f"{store.url}: the local copy of this run is {copy_objects(store, objects, path)}")
        upload = _Upload(store, path)
        save_listeners.append(upload.try_run)
        try:
            yield path
        finally:
            save_listeners.remove(upload.try_run)
            try:
                upload.run()
            except StorageError as error:
                backup = path.with_name(f"{path.name}.{time.strftime('%Y%m%d-%H%M%S')}")
                path.rename(backup)
                message = f"{error.reason}\nall files of the run are in {backup}"
                advice = "the same command continues from the last checkpoint in the store"
                raise StorageError(f"{message}\n{advice}", path=_WHAT) from error
    finally:
        _own_runs.discard(store.url)
        with contextlib.suppress(PathError, StorageError):
            if store.read(OWNER) == owner:  # Otherwise, another process has taken over.
                store.delete(OWNER)


def _acquire(store: ObjectStore, lock: Path) -> bytes:
    """Writes the owner file, unless another process owns the run; returns its content."""
    content = redact(json.dumps(describe_process())).encode()
    with lock_scope(lock):
        if not store.create(OWNER, content):
            holder = json.loads(store.read(OWNER))
            # A process in a container that was restarted has the ID of the one before.
            is_own = holder.get("process") == os.getpid() and store.url not in _own_runs
            if may_hold(holder) and not is_own:
                raise refusal(store.url, holder, f"{store.url}/{OWNER}")
            store.write(OWNER, content)
        _own_runs.add(store.url)
    return content


class _Upload:
    """Makes the objects of a run equal to its local copy.

    Uploads files of no checkpoint, then the data of checkpoints and their records, then their
    index files, which complete them, then the files that name the newest ones. Then it deletes the
    objects of removed files. So a process that is killed leaves the previous checkpoint.
    """

    def __init__(self, store: ObjectStore, path: Path) -> None:
        self._store = store
        self._path = path
        self._sent = _list_files(path)
        self._guard = threading.Lock()

    def try_run(self) -> None:
        """Uploads the changes; if that fails, training continues, and the next save tries again."""
        try:
            self.run()
        except StorageError as error:
            note(f"warning: {error}\n  training continues; the next save uploads again")

    def run(self) -> None:
        """Uploads the changes. Raises `StorageError`."""
        with self._guard:
            # Checkpoints may change during a listing: the second one has all that the files of the
            # first one name.
            first = _list_files(self._path)
            files = _list_files(self._path)
            files |= {name: stat for name, stat in first.items() if _order(name) == _POINTER}
            changed = [name for name in files if self._sent.get(name) != files[name]]
            for name in changed:
                if _order(name) == _INDEX and name in self._sent:
                    self._store.delete(name)  # Its data are replaced.
            for name in sorted(changed, key=lambda name: (_order(name), name)):
                self._send(name, files[name])
            gone = self._sent.keys() - first.keys() - files.keys()
            for name in sorted(gone, key=_order, reverse=True):
                self._store.delete(name)
                del self._sent[name]

    def _send(self, name: str, stat: Stat) -> None:
        path = self._path / name
        try:
            if _order(name) < _POINTER or file_stat(path) == stat:
                self._store.upload(path, name)
                self._sent[name] = stat
        except (FileNotFoundError, PathError):
            if path.exists():
                raise
            # It has just been removed.


_INDEX, _POINTER = 2, 3


def _order(name: str) -> int:
    """Returns the order of uploads."""
    if name.rpartition("/")[2] == "checkpoint":
        return _POINTER
    if not CHECKPOINT_FILE.fullmatch(name):
        return 0
    return _INDEX if name.endswith(".index") else 1


def _list_files(directory: Path) -> dict[str, Stat]:
    """Returns the size and time of each file of a run."""
    files = {}
    for above, directories, names in os.walk(directory):
        # Names that begin with a dot are local to this machine: locks, temporary files.
        directories[:] = [name for name in directories if not name.startswith(".")]
        for name in names:
            path = Path(above, name)
            if not name.startswith(".") and ".tempstate" not in name:
                with contextlib.suppress(FileNotFoundError):
                    files[path.relative_to(directory).as_posix()] = file_stat(path)
    return files
