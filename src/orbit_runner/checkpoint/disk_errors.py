"""Turns errors caused by a full or read-only disk into one message."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.run_directory.paths import RunDirectory

_NUMBERS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
# TensorFlow reports the same errors as text.
_WORDS = (
    "No space left on device",
    "Disk quota exceeded",
    "File too large",
    "Read-only file system",
)


class DiskError(RunnerError):
    """Raised if the run directory cannot be written to."""

    exit_code = 1


def describe_disk_problem(error: BaseException) -> str:
    """Returns what is wrong with the disk, or "" if the error has another cause."""
    if isinstance(error, OSError) and error.errno in _NUMBERS:
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}"
    if not type(error).__module__.startswith("tensorflow"):
        return ""
    return next((words for words in _WORDS if words in str(error)), "")


def describe_failed_write(error: BaseException, checkpoints: CheckpointFolder) -> str:
    """Returns two lines: why writing failed, and which checkpoint is intact."""
    problem = describe_disk_problem(error)
    try:
        steps = checkpoints.committed()
    except OSError:
        steps = []
    left = (
        f"the checkpoint of step {steps[-1]} is intact" if steps else "there is no checkpoint yet"
    )
    remedy = "free up disk space and start the run again" if problem else "start the run again"
    return f"{problem or first_line(error)}\n{left}; {remedy}"


@contextlib.contextmanager
def disk_error_scope(run: Path) -> Iterator[None]:
    """Raises `DiskError` for an error in a `with` block that a full or read-only disk caused."""
    try:
        yield
    except Exception as error:
        if not describe_disk_problem(error):
            raise
        checkpoints = CheckpointFolder(RunDirectory(run).checkpoints)
        raise DiskError(
            f"cannot write to {run}: {describe_failed_write(error, checkpoints)}"
        ) from error
