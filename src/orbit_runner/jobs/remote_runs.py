"""Access to runs in an object store, for commands that only read them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from orbit_runner.errors import RunnerError
from orbit_runner.storage.paths import EmptyPathError, PathError, is_remote, strip_file_scheme

_T = TypeVar("_T")
_ATTEMPTS = 3


@contextlib.contextmanager
def local_run_scope(text: str, what: str, checkpoints: str | None = "all") -> Iterator[Path]:
    """Yields the local directory of a run; first downloads what a command needs of a remote run.

    Error messages name the URL instead of the copy. `what` is the name of the argument in messages.
    `checkpoints` selects what is copied: `all`; the requested step, `best` or path; None for the
    newest.
    """
    if not is_remote(text):
        yield Path(strip_file_scheme(text))
        return
    path = _fetch(text.rstrip("/"), what, checkpoints)
    try:
        yield path
    except RunnerError as error:
        error.args = (str(error).replace(str(path), text), *error.args[1:])
        raise


def _fetch(url: str, what: str, checkpoints: str | None) -> Path:
    for attempt in range(_ATTEMPTS):
        try:
            return _fetch_once(url, what, checkpoints)
        except PathError as error:
            # A run that is training may delete a checkpoint while it is downloaded.
            was_deleted = isinstance(error.__cause__, FileNotFoundError)
            if not was_deleted or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError


def _fetch_once(url: str, what: str, checkpoints: str | None) -> Path:
    from orbit_runner.checkpoint.directory import CheckpointFolder
    from orbit_runner.run_directory.remote_copy import committed_groups, groups_of
    from orbit_runner.run_directory.remote_runs import (
        all_checkpoints,
        checkpoint_of_step,
        newest_checkpoints,
    )
    from orbit_runner.serving.export_directory import contains_export
    from orbit_runner.storage.objects import ObjectInfo
    from orbit_runner.storage.staging import stage

    names: list[str] = []

    def choose(
        rule: Callable[[Mapping[str, ObjectInfo]], Mapping[str, ObjectInfo]],
        objects: Mapping[str, ObjectInfo],
    ) -> Mapping[str, ObjectInfo]:
        names[:] = objects
        # An export is not a run, and all of it is needed.
        return objects if contains_export(objects) else rule(objects)

    if checkpoints is None or checkpoints == "best":
        path = stage(url, what, functools.partial(choose, newest_checkpoints))
        for group in committed_groups(groups_of(names)):
            place = path / group.series
            if not (path / group.index).exists():
                continue
            if CheckpointFolder(place.parent, name=place.name).damage(group.step):
                return stage(url, what, all_checkpoints)
        return path
    if checkpoints.isdecimal():
        rule = functools.partial(checkpoint_of_step, int(checkpoints))
        return stage(url, what, functools.partial(choose, rule))
    try:
        return stage(url, what, functools.partial(choose, all_checkpoints))
    except EmptyPathError as error:
        above, _, name = url.rpartition("/")
        if above.count("/") < 3:
            raise
        # The URL may name one checkpoint, without its suffix.
        try:
            return stage(above, what, functools.partial(_select_prefix, name)) / name
        except PathError:
            raise error from None


def _select_prefix(prefix: str, objects: Mapping[str, _T]) -> Mapping[str, _T]:
    return {name: info for name, info in objects.items() if name.startswith(f"{prefix}.")}
