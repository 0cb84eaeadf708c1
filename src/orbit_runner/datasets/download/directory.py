"""The folder of a data set: whether it can be used, who uses it, and how files get into it."""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from orbit_runner.datasets.download.errors import DownloadError
from orbit_runner.datasets.published import format_bytes
from orbit_runner.errors import RunnerError, format_list

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def writable(folder: Path) -> None:
    """Makes a folder if need be.

    Args:
        folder: The folder.

    Raises:
        RunnerError: It cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunnerError(f"--dir: {folder} cannot be made ({error.strerror})") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise RunnerError(f"--dir: {folder} cannot be written to")


@contextlib.contextmanager
def holding(folder: Path) -> Iterator[None]:
    """Keeps other processes from filling the same folder during a `with` block.

    Args:
        folder: The folder; a lock on itself, so that no file is left behind.

    Raises:
        RunnerError: Another process is at it.
    """
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunnerError(f"{folder}: another `runner data get` is at work there") from None
        except OSError:
            pass  # A file system without locks.
        yield
    finally:
        os.close(descriptor)


def check_free(folder: Path, need: int) -> None:
    """Checks that the disk has room.

    Args:
        folder: The folder.
        need: Bytes that are still to come, unpacked files included.

    Raises:
        DownloadError: There is less.
    """
    free = shutil.disk_usage(folder).free
    if need > free:
        raise DownloadError(
            f"{folder}: {format_bytes(free)} are free on its disk, {format_bytes(need)} are needed"
        )


def put(made: Sequence[str], aside: Path, folder: Path, *, replace: bool) -> None:
    """Moves finished files into place.

    Args:
        made: The files, relative to both folders.
        aside: Where they are, on the same disk.
        folder: Where they go.
        replace: Whether other files of those names are written over.

    Raises:
        RunnerError: There are other files of those names; nothing was moved.
    """
    other = [name for name in made if (folder / name).exists() and not _same(aside, folder, name)]
    if other and not replace:
        raise RunnerError(
            f"{folder}: these are there, but are not those of the published set:\n"
            f"{format_list(other)}\nmove them away, choose another --dir, or give --replace"
        )
    for name in made:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(aside / name, folder / name)


def _same(aside: Path, folder: Path, name: str) -> bool:
    there = folder / name
    return there.is_file() and filecmp.cmp(aside / name, there, shallow=False)
