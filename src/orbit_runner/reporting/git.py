"""Runs git with limits for the time and the size of its output."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

SECONDS = 10.0  # for all commands together
MAX_OUTPUT = 32 * 2**20  # bytes of one command
# Do not write the index, so that git commands of the user do not meet its lock.
_SETTINGS = ("-c", "core.quotePath=true", "-c", "diff.autoRefreshIndex=false")


class GitError(Exception):
    """Raised if git gives no result."""


class GitTimeoutError(GitError):
    """Raised if all commands together take longer than `SECONDS`."""


class Git:
    """Runs git with a limit for the total time. Runs it in `root` once that is set."""

    root: Path = Path()

    def __init__(self) -> None:
        self._end = time.monotonic() + SECONDS
        self._environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}

    def output(self, *arguments: str) -> bytes:
        """Returns the output of a git command, cut after `MAX_OUTPUT` + 1 bytes."""
        command = ["git", *_SETTINGS, *arguments]
        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(
                    command, cwd=self.root, env=self._environment, stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
                )  # fmt: skip
            except FileNotFoundError:
                raise GitError("git is not installed") from None
            found = self._read_output(process)
            errors.seek(0)
            message = errors.read(1000).decode("utf-8", "backslashreplace").strip()
        # `diff --no-index` exits with 1 if there is a difference.
        is_difference = process.returncode == 1 and found.startswith(b"diff --git ")
        if process.returncode == 0 or is_difference or len(found) > MAX_OUTPUT:
            return found
        if time.monotonic() >= self._end:
            raise GitTimeoutError(f"git took longer than {SECONDS:g} seconds")
        if "not a git repository" in message:
            raise GitError("not in a git repository")
        raise GitError(message.removeprefix("fatal: ") or f"git {arguments[0]} failed")

    def _read_output(self, process: subprocess.Popen[bytes]) -> bytes:
        timer = threading.Timer(max(0.0, self._end - time.monotonic()), _kill, [process])
        timer.start()
        try:
            with process:
                assert process.stdout is not None
                return process.stdout.read(MAX_OUTPUT + 1)
        finally:
            timer.cancel()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills git and its children, such as filters, which may keep its output open."""
    with contextlib.suppress(OSError):
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
