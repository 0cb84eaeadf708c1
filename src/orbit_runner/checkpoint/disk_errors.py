"""Turns errors of the disk into one message."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from orbit_runner import exit_codes
from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.run_directory.paths import RunDirectory

# TensorFlow reports the same errors as text.
_FULL = {
    errno.ENOSPC: "No space left on device",
    errno.EDQUOT: "Disk quota exceeded",
    errno.EFBIG: "File too large",
}
_BROKEN = {
    errno.EROFS: "Read-only file system",
    errno.EIO: "Input/output error",
    errno.ESTALE: "Stale file handle",
}
_MESSAGES = {**_FULL, **_BROKEN}


class SaveError(RunnerError):
    """Raised if a checkpoint or another file of a run could not be written."""

    code = "save-failed"
    exit_code = exit_codes.CRASHED


def describe_disk_problem(error: BaseException) -> str:
    """Returns what is wrong with the disk, or "" if the error has another cause."""
    if isinstance(error, OSError) and error.errno in _MESSAGES:
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}"
    if not type(error).__module__.startswith("tensorflow"):
        return ""
    return next((words for words in _MESSAGES.values() if words in str(error)), "")


def describe_failed_write(error: BaseException, checkpoints: CheckpointFolder) -> str:
    """Returns two lines: why writing failed, and which checkpoint is intact."""
    problem = describe_disk_problem(error)
    try:
        steps = checkpoints.committed_steps()
    except OSError:
        steps = []
    intact = (
        f"the checkpoint of step {steps[-1]} is intact" if steps else "there is no checkpoint yet"
    )
    return f"{problem or first_line(error)}\n{intact}; {_remedy(problem)}"


def _remedy(problem: str) -> str:
    advice = "start the run again"
    if any(words in problem for words in _FULL.values()):
        return f"free up disk space and {advice}"
    return f"make sure that the disk can be written, and {advice}" if problem else advice


@contextlib.contextmanager
def disk_error_scope(run: Path) -> Iterator[None]:
    """Raises `SaveError` for an error in a `with` block that the disk of a run caused.

    That is any error of a file in the run directory, and a disk that is full or broken.
    """
    try:
        yield
    except Exception as error:
        if not (describe_disk_problem(error) or _is_below(run, error)):
            raise
        checkpoints = CheckpointFolder(RunDirectory(run).checkpoints)
        raise SaveError(
            f"cannot write to {run}: {describe_failed_write(error, checkpoints)}"
        ) from error


def _is_below(run: Path, error: Exception) -> bool:
    if not isinstance(error, OSError) or not isinstance(error.filename, (str, Path)):
        return False
    return Path(error.filename).absolute().is_relative_to(run.absolute())
