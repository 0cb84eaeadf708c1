"""A lock that lets one process train in a run directory, and is released when the process ends."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import shlex
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from orbit_runner import exit_codes
from orbit_runner.errors import RunnerError
from orbit_runner.utils.files import directories_in_use, timestamp
from orbit_runner.utils.log import note

# Errors of `flock` on a file system without locks.
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
# Errors of a disk, which may go away; the caller reports them as it does for every other file.
_BROKEN_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EIO}
_PATIENCE_SECONDS, _PAUSE_SECONDS = 2.0, 0.05
_LARGEST_TEXT = 65536


@dataclasses.dataclass
class _Held:
    """A directory that this process has locked."""

    file: int  # the descriptor of the lock file
    folder: int  # the descriptor of the directory
    count: int = 0  # how often the process acquired the lock

    def close(self) -> None:
        os.close(self.file)
        os.close(self.folder)


_held: dict[Path, _Held] = {}
_guard = threading.Lock()


class RunDirectoryRemoved(RunnerError):
    """Raised if the run directory was removed, moved or replaced during training."""

    code = "run-removed"
    exit_code = exit_codes.CRASHED

    def __init__(self, model_dir: str | Path) -> None:
        super().__init__(
            f"{model_dir} was removed during training, with its checkpoints\n"
            "start the run again; it begins at step 0",
            path="--model_dir",
        )


class RunLock:
    """Lets one process at a time train in a run directory.

    The lock is an advisory `flock` on `<model_dir>/.lock`. The kernel releases it when the process
    ends, even after SIGKILL. The file is never deleted, because two processes could then lock two
    different files of the same name. Its text names the process that holds the lock or held it
    last. A process may acquire the lock of a directory more than once; a child created by `os.fork`
    does not share it. On platforms and file systems without such locks, nothing is locked.
    """

    def __init__(self, model_dir: str | Path) -> None:
        self._shown = model_dir
        self._folder = Path(model_dir).resolve()
        self._file = self._folder / ".lock"
        # The second one may contain links.
        self._paths = {self._folder, Path(os.path.abspath(model_dir))}

    def acquire(self) -> None:
        """Acquires the lock until `release` or the end of the process.

        Creates the directory if it does not exist. Raises `RunnerError` if another process has the
        lock, or the directory cannot be written.
        """
        with _guard:
            if self.is_removed():
                # An earlier run of this process locked a directory that is no longer there.
                _held.pop(self._folder).close()
                directories_in_use.difference_update(self._paths)
            if self._folder not in _held:
                _held[self._folder] = self._open_and_lock()
                directories_in_use.update(self._paths)
            _held[self._folder].count += 1

    def release(self) -> None:
        """Releases the lock when it has been called as often as `acquire`."""
        with _guard:
            held = _held.get(self._folder)
            if held is None:
                return  # A forked child exits a `with` block that its parent entered.
            held.count -= 1
            if held.count:
                return
            del _held[self._folder]
            directories_in_use.difference_update(self._paths)
        with contextlib.suppress(OSError):  # The lock counts, not the text.
            _write_record(held.file, {**describe_process(), "released": timestamp()})
        # Closing alone would not release the lock if native code has forked a child.
        with contextlib.suppress(OSError):
            fcntl.flock(held.file, fcntl.LOCK_UN)
        held.close()

    def is_removed(self) -> bool:
        """Returns whether the directory was removed, moved or replaced since it was locked.

        The open descriptor keeps its inode number from being used again. A removed lock file alone
        does not count: the checkpoints are still there.
        """
        held = _held.get(self._folder)
        if held is None:
            return False
        try:
            return not os.path.samestat(os.fstat(held.folder), self._folder.stat())
        except FileNotFoundError:
            return True
        except OSError:
            return False  # A file system that does not answer has not removed anything.

    def __enter__(self) -> RunLock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _open_and_lock(self) -> _Held:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            if error.errno in _BROKEN_DISK:
                raise
            raise RunnerError(
                f"cannot write {self._file}: {error.strerror}\nuse a writable directory",
                path="--model_dir",
                code="not-writable",
            ) from error
        try:
            self._lock(file)
            directory = os.open(self._folder, os.O_RDONLY)
        except BaseException:
            os.close(file)
            raise
        _write_record(file, describe_process())
        return _Held(file, directory)

    def _lock(self, file: int) -> None:
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                # The text is written after the lock is acquired, and the kernel may release the
                # lock of a killed process late: for a moment, the text may name one that has ended.
                holder = _read_record(file)
                if may_hold(holder) or time.monotonic() > end:
                    raise refusal(str(self._shown), holder) from None
                time.sleep(_PAUSE_SECONDS)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise RunnerError(
                        f"cannot lock {self._file}: {error.strerror}", code="not-writable"
                    ) from error
                note(
                    f"{self._shown} cannot be locked ({error.strerror}): "
                    "make sure that no other process trains in it"
                )
                return


# What a start writes before the run begins, which is when it writes its config.
_BEFORE_CONFIG = {".lock", "run.json", "report.html", "code.patch", "assets"}


@contextlib.contextmanager
def refused_start_scope(model_dir: Path) -> Iterator[None]:
    """Removes a new run directory if the run in a `with` block is refused before it begins.

    Its files would look like a run. A directory that has other files stays.
    """
    created = [path for path in (model_dir, *model_dir.parents) if not os.path.exists(path)]
    try:
        yield
    except RunnerError as error:
        with contextlib.suppress(OSError):
            # Another process may have created it at the same time, and have its lock.
            is_refused = error.exit_code == exit_codes.WRONG_USAGE and error.code != "run-locked"
            if created and is_refused:
                if {*os.listdir(model_dir)} <= _BEFORE_CONFIG:
                    shutil.rmtree(model_dir)
                for parent in created[1:]:
                    parent.rmdir()
        raise


@dataclasses.dataclass(frozen=True)
class LockHolder:
    """The process that has the lock of a run directory."""

    host: str  # "" for this machine. Whether a process on another one still runs is not known.
    since: str  # Such as `2026-11-20T10:00:00+0000`.


def release_all() -> None:
    """Releases all locks of this process. No thread may be writing to their directories."""
    for folder, held in [*_held.items()]:
        held.count = 1
        RunLock(folder).release()


def read_holder(model_dir: Path) -> LockHolder | None:
    """Returns the process that has the lock of a run directory, or None if no process has it."""
    try:
        file = os.open(model_dir / ".lock", os.O_RDONLY)
    except OSError:
        return None
    try:
        holder = _read_record(file)
        if not may_hold(holder):
            return None
        host = str(holder.get("host"))
        if host != socket.gethostname():
            return LockHolder(host, str(holder.get("since")))
        with contextlib.suppress(OSError):  # Its ID may have been reused, so the lock decides.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        return LockHolder("", str(holder.get("since")))
    finally:
        os.close(file)


def may_hold(holder: Mapping[str, object]) -> bool:
    """Returns whether a process may still have a lock. On another machine, that is not known."""
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


def refusal(directory: str, holder: Mapping[str, object], owner: str = "") -> RunnerError:
    """Returns the error for a directory that another process has; `owner` is its owner file."""
    who = (
        f"process {holder.get('process')} on {holder.get('host')}, since {holder.get('since')}\n"
        f"  {holder.get('command')}"
    )
    more = " (evaluation-only modes can run at the same time)"
    if owner:
        more = f"\nif it has ended, delete {owner}"
    return RunnerError(
        f"another process is training in {directory}\n"
        f"  {who if holder else 'an unknown process'}\n"
        f"wait for it to finish, stop it, or use another --model_dir{more}",
        path="--model_dir",
        code="run-locked",
    )


def describe_process() -> dict[str, object]:
    """Returns what a lock says of this process."""
    command = shlex.join(sys.orig_argv)
    return {
        "process": os.getpid(),
        "host": socket.gethostname(),
        "since": timestamp(),
        "command": command if len(command) <= 500 else f"{command[:500]}…",
    }


def _write_record(file: int, record: dict[str, object]) -> None:
    # Written in place, because a rename would replace the file with one that is not locked. One
    # call writes the whole line, so that a reader sees all of it; the rest of a longer line is cut
    # off afterward.
    text = f"{json.dumps(record)}\n".encode()
    os.lseek(file, 0, os.SEEK_SET)
    os.write(file, text)
    os.ftruncate(file, len(text))


def _read_record(file: int) -> dict[str, object]:
    os.lseek(file, 0, os.SEEK_SET)
    try:
        record = json.loads(os.read(file, _LARGEST_TEXT).decode().splitlines()[0])
    except (OSError, ValueError, IndexError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _release_in_child() -> None:
    """Closes the lock files in a forked child: the locks belong to the parent process."""
    global _guard
    _guard = threading.Lock()
    for held in _held.values():
        held.close()
    _held.clear()
    directories_in_use.clear()


os.register_at_fork(after_in_child=_release_in_child)
