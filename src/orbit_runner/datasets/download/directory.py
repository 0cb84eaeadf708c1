"""The directory of a dataset: checks it, locks it, and moves files into it."""

from __future__ import annotations

import contextlib
import fcntl
import filecmp
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from orbit_runner.datasets.download.errors import DownloadError
from orbit_runner.datasets.public_dataset import format_bytes
from orbit_runner.errors import RunnerError, format_list


def ensure_writable(folder: Path) -> None:
    """Creates a directory if needed; raises an error if it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunnerError(f"--dir: cannot create {folder} ({error.strerror})") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise RunnerError(f"--dir: {folder} is not writable")


@contextlib.contextmanager
def directory_lock_scope(folder: Path) -> Iterator[None]:
    """Locks a directory against other processes within a `with` block.

    The lock is on the directory itself, so no file is left behind. Raises an error if another
    process has locked it.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunnerError(
                f"{folder}: another `runner data get` is using this directory"
            ) from None
        except OSError:
            pass  # The file system does not support locks.
        yield
    finally:
        os.close(descriptor)


def check_free(folder: Path, need: int) -> None:
    """Raises an error if the disk has less than `need` bytes of free space."""
    free = shutil.disk_usage(folder).free
    if need > free:
        raise DownloadError(
            f"{folder}: requires {format_bytes(need)}, but only {format_bytes(free)} are free on "
            "its disk"
        )


def move_files(made: Sequence[str], aside: Path, folder: Path, *, replace: bool) -> None:
    """Moves finished files from `aside` to `folder`, which must be on the same disk.

    `made` are the files, relative to both. Unless `replace` is set, raises an error if different
    files with these names exist; then nothing was moved.
    """
    other = [
        name for name in made if (folder / name).exists() and not _is_same(aside, folder, name)
    ]
    if other and not replace:
        raise RunnerError(
            f"{folder}: these files exist, but differ from the published dataset:\n"
            f"{format_list(other)}\nmove them, choose another --dir, or pass --replace"
        )
    for name in made:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(aside / name, folder / name)


def _is_same(aside: Path, folder: Path, name: str) -> bool:
    there = folder / name
    return there.is_file() and filecmp.cmp(aside / name, there, shallow=False)
