"""Runs an experiment whose run directory is in an object store."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbit_runner.checkpoint.directory import Retention
from orbit_runner.config.schema.modes import TRAINING
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.remote_copy import (
    CheckpointFiles,
    Mirror,
    WorkingCopy,
    committed_groups,
    groups_of,
    is_best,
    optional_files,
)
from orbit_runner.storage.lease import Lease
from orbit_runner.storage.objects import (
    ObjectInfo,
    ObjectStore,
    StorageError,
    blame_scope,
    open_store,
)
from orbit_runner.storage.paths import PathError, cache_directory, path_problem
from orbit_runner.storage.staging import stage

if TYPE_CHECKING:
    import tensorflow as tf

_WHAT = "--model_dir"
_POLL_SECONDS = 5.0


@contextlib.contextmanager
def training_scope(url: str, *, keep: int | Retention | None) -> Iterator[Path]:
    """Yields a local working copy of a run directory, and uploads its changes.

    At the end of the block, everything in the working copy is in the store. `keep` is the number of
    checkpoints that the run keeps, or its rule; None keeps all. Raises `PathError` if the URL
    cannot be used as a run directory or is not writable, `RunnerError` if another process trains
    there or has taken over the run, and `StorageError` if an upload fails.
    """
    store = _open_store(url)
    training = threading.Event()
    lease = Lease(store, on_lost=lambda: _interrupt(training))
    with blame_scope(_WHAT):
        lease.acquire()
    try:
        with blame_scope(_WHAT):
            copy = WorkingCopy(store)
            copy.prepare(lease.owner, lease.previous)
        print(f"{store.url}: the working copy of this run is {copy.path}", file=sys.stderr)
        with _mirror_scope(copy, lease, training, keep):
            yield copy.path
    finally:
        lease.release()


@contextlib.contextmanager
def _mirror_scope(
    copy: WorkingCopy, lease: Lease, training: threading.Event, keep: int | Retention | None
) -> Iterator[None]:
    mirror = Mirror(copy, lease.is_held, keep=keep)
    mirror.start()
    training.set()
    try:
        yield
    except BaseException as error:
        training.clear()
        try:
            _finish(mirror, copy, lease)
        except StorageError as failure:
            # The error that ended the run decides the exit code; the failed upload is only printed.
            print(f"runner: {failure}", file=sys.stderr)
        except RunnerError as taken:
            raise taken from error
        raise
    training.clear()
    _finish(mirror, copy, lease)


def _finish(mirror: Mirror, copy: WorkingCopy, lease: Lease) -> None:
    """Uploads what is left, unless another process has taken over the run."""
    try:
        if lease.lost is None:
            mirror.finish()
    except StorageError as failure:
        if lease.lost is None:
            message = _explain(failure, copy)
            raise StorageError(message, permanent=failure.permanent) from failure
    if lease.lost is not None:
        mirror.stop()
        raise RunnerError(lease.takeover_message(), code="run-locked")


def _explain(failure: StorageError, copy: WorkingCopy) -> str:
    return (
        f"{_WHAT}: {failure}\nall files of the run are in its working copy, {copy.path}\n"
        "run the same command again on this machine to upload what is missing"
    )


def _interrupt(training: threading.Event) -> None:
    """Stops training after the current loop, as Ctrl-C does: another process has taken over."""
    if training.is_set():
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@contextlib.contextmanager
def evaluation_scope(url: str, *, summaries: str, follows: bool) -> Iterator[Path]:
    """Yields a local directory with the newest checkpoint of a run, which may still be training.

    Only the record of the evaluation and its summaries are uploaded; files that training writes are
    not changed. `summaries` is the subdirectory of the evaluation summaries. If `follows`, new
    checkpoints are downloaded as they appear. Raises `PathError` if the run does not exist or
    cannot be read, and `StorageError` if the store does not respond.
    """
    store = _open_store(url)
    above = cache_directory("evaluations")
    above.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=above)) / Path(store.url).name
    try:
        shutil.copytree(stage(store.url, _WHAT, newest_checkpoints), directory)
        before = {path: path.stat().st_mtime_ns for path in _records(directory, summaries)}
        with _following_scope(store, directory) if follows else contextlib.nullcontext():
            try:
                yield directory
            except RunnerError as error:
                error.args = (str(error).replace(str(directory), store.url), *error.args[1:])
                raise
        with blame_scope(_WHAT):
            for path in _records(directory, summaries):
                if before.get(path) != path.stat().st_mtime_ns:
                    store.upload(path, path.relative_to(directory).as_posix())
    finally:
        shutil.rmtree(directory.parent, ignore_errors=True)


def _records(directory: Path, summaries: str) -> list[Path]:
    events = (directory / summaries).rglob("events.out.tfevents*")
    return [*directory.glob("run.*.json"), *events]


@contextlib.contextmanager
def _following_scope(store: ObjectStore, directory: Path) -> Iterator[None]:
    stop = threading.Event()

    def follow() -> None:
        while not stop.wait(_POLL_SECONDS):
            # Objects that do not exist yet, or no longer exist, are tried again at the next poll.
            with contextlib.suppress(StorageError, OSError):
                _fetch_newest(store, directory)

    thread = threading.Thread(target=follow, name="run-follow", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _fetch_newest(store: ObjectStore, directory: Path) -> None:
    objects = store.list()
    chosen = newest_checkpoints(objects)
    groups = groups_of(chosen)
    for group, names in groups.items():
        if not (directory / group.index).exists():
            for name in names:  # The index comes last.
                store.download(name, directory / name)
    for group, names in groups_of(
        path.relative_to(directory).as_posix() for path in directory.rglob("*-*.*")
    ).items():
        newer = [
            candidate
            for candidate in groups
            if candidate.series == group.series and candidate > group
        ]
        if newer and group not in groups:
            for name in reversed(names):
                (directory / name).unlink(missing_ok=True)


def newest_checkpoints(objects: Mapping[str, ObjectInfo]) -> dict[str, ObjectInfo]:
    """Returns the small files of a run, the newest checkpoint of each series, and all best ones."""
    groups = committed_groups(groups_of(objects))
    newest: dict[str, CheckpointFiles] = {}
    for group in groups:
        newest[group.series] = max(group, newest.get(group.series, group))
    wanted = {
        name
        for group, names in groups.items()
        if group in newest.values() or is_best(group)
        for name in names
    }
    return _add_small_files(wanted, objects)


def checkpoint_of_step(step: int, objects: Mapping[str, ObjectInfo]) -> dict[str, ObjectInfo]:
    """Returns the small files of a run and the checkpoints of one step."""
    groups = committed_groups(groups_of(objects))
    wanted = {name for group, names in groups.items() if group.step == step for name in names}
    return _add_small_files(wanted, objects)


def all_checkpoints(objects: Mapping[str, ObjectInfo]) -> dict[str, ObjectInfo]:
    """Returns the small files of a run and all files of checkpoints except damaged ones."""
    in_groups = {name for names in groups_of(objects).values() for name in names}
    damaged = "checkpoints/damaged/"
    wanted = {name for name in in_groups if not name.startswith(damaged)}
    return _add_small_files(wanted, objects)


def _add_small_files(wanted: set[str], objects: Mapping[str, ObjectInfo]) -> dict[str, ObjectInfo]:
    in_groups = {name for names in groups_of(objects).values() for name in names}
    records = optional_files(objects)
    return {
        name: info
        for name, info in objects.items()
        if name in wanted or not (name in in_groups or name in records or name.startswith("."))
    }


def _open_store(url: str) -> ObjectStore:
    problem = path_problem(url, remote=True)
    if problem:
        raise PathError(problem, path=_WHAT)
    return open_store(url, _WHAT)


@contextlib.contextmanager
def remote_run_scope(
    url: str, mode: str, params: Any, strategy: tf.distribute.Strategy | None
) -> Iterator[Path]:
    """Yields the local copy of a run directory in an object store, and uploads what the run writes.

    `params` is an experiment of Model Garden or of this package. If `strategy` is None, the current
    strategy is used. Raises `RunnerError` if the processes of a cluster would share the directory
    or another process trains in it, and `StorageError` if the store cannot be read or written.
    """
    import tensorflow as tf

    from orbit_runner.checkpoint.directory import retention_of
    from orbit_runner.distribute.parameter_server import is_asynchronous
    from orbit_runner.distribute.process_group import Workers

    strategy = strategy or tf.distribute.get_strategy()
    if Workers(strategy).count > 1 or is_asynchronous(strategy):
        raise RunnerError(
            f"got {url!r}, expected a local path\n"
            "the processes of a cluster share one directory: use one that all of them mount",
            path="model_dir",
            code="bad-path",
        )
    trainer = params.trainer
    if mode in TRAINING:
        with training_scope(url, keep=retention_of(trainer)) as directory:
            yield directory
        return
    follows = mode == "continuous_eval"
    subdir = trainer.validation_summary_subdir
    with evaluation_scope(url, summaries=subdir, follows=follows) as directory:
        yield directory
