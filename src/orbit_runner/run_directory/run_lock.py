"""One process trains in a folder: a lock that dies with its process, however that ends."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from orbit_runner.errors import RunnerError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# What `flock` says on a file system that has no locks.
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_PATIENCE_SECONDS, _PAUSE_SECONDS = 2.0, 0.05
_LARGEST_TEXT = 65536

# Folder to [descriptor of its lock file, how often this process took it].
_held: dict[Path, list[int]] = {}
_guard = threading.Lock()


class RunDirectoryRemoved(RunnerError):
    """The directory of a run was removed while it trained."""

    exit_code = 1


class RunLock:
    """The right to train in a folder, for one process at a time.

    It is an advisory `flock` on `<model_dir>/.lock`, which the kernel takes back when the process
    ends, a SIGKILL included; the file stays, for deleting it would let two processes lock two
    files of one name. Its text says who holds the lock, or held it last. A process may take the
    lock of a folder as often as it likes; a child made by `os.fork` has no share in it.

    Where there are no such locks (Windows, and some file systems that several machines share)
    nothing is locked, and `note` says so. Looking whether the process named in the file lives
    would be no cure: on those file systems it lives on another machine, or its number has gone to
    another process, and a run would be refused that nothing stands against.

    Attributes:
        path: The lock file.
        note: What the user should know of this lock; "" if nothing.
    """

    def __init__(self, model_dir: str | Path) -> None:
        """Names the folder; nothing is locked yet.

        Args:
            model_dir: The folder of a run; made when the lock is taken.
        """
        self._shown, self._folder = str(model_dir), Path(model_dir).resolve()
        self.path, self.note = self._folder / ".lock", ""

    def acquire(self) -> None:
        """Takes the lock, for the rest of the process unless it is released.

        Raises:
            RunnerError: Another process has it, or the folder cannot be written.
        """
        with _guard:
            if self._folder not in _held:
                _held[self._folder] = [self._lock_file(), 0]
            _held[self._folder][1] += 1

    def release(self) -> None:
        """Gives the lock back, where this process took it no more often than that."""
        with _guard:
            held = _held.get(self._folder)
            if held is None:
                return  # A forked child leaves a `with` block that its parent entered.
            held[1] -= 1
            if held[1]:
                return
            del _held[self._folder]
        _write(held[0], {**_this_process(), "released": _now()})
        # Closing alone would leave the lock to a child that was forked behind Python's back.
        if fcntl is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(held[0], fcntl.LOCK_UN)
        os.close(held[0])

    def is_removed(self) -> bool:
        """Returns whether the directory was removed, or replaced, since this process locked it."""
        held = _held.get(self._folder)
        if held is None:
            return False
        try:
            return not os.path.samestat(os.fstat(held[0]), self.path.stat())
        except OSError:
            return True

    def __enter__(self) -> RunLock:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def _lock_file(self) -> int:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise RunnerError(
                f"--model_dir: cannot write {self.path}: {error.strerror}\n"
                "give a folder that you may write to"
            ) from error
        try:
            self._lock(file)
        except BaseException:
            os.close(file)
            raise
        _write(file, _this_process())
        return file

    def _lock(self, file: int) -> None:
        for last in _turns():
            try:
                if _is_taken(file):
                    return
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise RunnerError(f"cannot lock {self.path}: {error.strerror}") from error
                self.note = (
                    f"{self._shown} cannot be locked ({error.strerror}): "
                    "see to it that no other process trains in it"
                )
                return
            holder = _read(file)
            if last or _may_hold(holder):
                raise RunnerError(_refusal(self._shown, holder))


def _is_taken(file: int) -> bool:
    if fcntl is None:
        raise OSError(errno.ENOSYS, "this platform has no flock")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _turns() -> Iterator[bool]:
    # The text is written after the lock is taken, and a killed process lets go once the kernel has
    # cleared it away: for a moment the text may name one that has ended.
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        yield False
        time.sleep(_PAUSE_SECONDS)
    yield True


def _may_hold(holder: dict[str, Any]) -> bool:
    if not holder or "released" in holder:
        return False
    process = holder.get("process")
    if holder.get("host") != socket.gethostname() or not isinstance(process, int):
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _refusal(folder: str, holder: dict[str, Any]) -> str:
    who = "a process that has not said which"
    if holder:
        who = (
            f"process {holder.get('process')} on {holder.get('host')}, since "
            f"{holder.get('since')}\n  {holder.get('command')}"
        )
    return (
        f"--model_dir: another process trains in {folder}\n"
        f"  {who}\n"
        "wait for it or end it, or give another --model_dir (modes that only evaluate may run "
        "beside it)"
    )


def _this_process() -> dict[str, Any]:
    command = shlex.join(sys.orig_argv)
    return {
        "process": os.getpid(),
        "host": socket.gethostname(),
        "since": _now(),
        "command": command if len(command) <= 500 else f"{command[:500]}…",
    }


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def _write(file: int, record: dict[str, Any]) -> None:
    # In place, for a rename would put a file that is not locked into its place; one line in one
    # call, so that a reader sees it whole, and only then without the rest of a longer one.
    text = f"{json.dumps(record)}\n".encode()
    os.lseek(file, 0, os.SEEK_SET)
    os.write(file, text)
    os.ftruncate(file, len(text))


def _read(file: int) -> dict[str, Any]:
    os.lseek(file, 0, os.SEEK_SET)
    try:
        record = json.loads(os.read(file, _LARGEST_TEXT).decode().splitlines()[0])
    except (OSError, ValueError, IndexError):
        return {}
    return record if isinstance(record, dict) else {}


def _forget() -> None:
    """Lets a forked child go without the locks: they stay with the process that took them."""
    global _guard
    _guard = threading.Lock()
    for file, _ in _held.values():
        os.close(file)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
