"""Limits the time and memory of a case, and detects that it runs code."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

MEMORY_BYTES = 2**30
SECONDS = 1.0
# Address space that may be reserved without being used, such as the stacks of threads.
_RESERVED_BYTES = 2**32
CANARY = "orbit_runner_fuzz_canary"
_FORBIDDEN = (
    "os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen", "pickle.find_class",
    "socket.connect", "socket.bind", "ctypes.dlopen", "code.__new__",
)  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class TooSlow(BaseException):
    """A case took more than a second of CPU time. No reader may catch it."""


class RanCode(Exception):
    """A case did what no reader may do."""


class TooMuchMemory(Exception):
    """A case used more than a gibibyte of memory."""


class Guard:
    """Watches the cases of this process. There may be only one, because hooks stay forever."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._seen, self._on = str(folder.resolve()), list[str](), False
        sys.addaudithook(self._audit)
        signal.signal(signal.SIGPROF, _stop)
        self._base = 0

    def begin(self) -> None:
        """Measures the memory of the process, after its modules were imported."""
        self._base = peak_bytes()
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit = used + MEMORY_BYTES + _RESERVED_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))

    @property
    def extra_bytes(self) -> int:
        """The peak of memory over that at the beginning."""
        return peak_bytes() - self._base

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Limits what runs inside. Raises TooSlow, RanCode or TooMuchMemory."""
        self._seen.clear()
        before, self._on = self.extra_bytes, True
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            self._on = False
            self._check(before)

    def _check(self, before: int) -> None:
        if self._seen:
            raise RanCode(self._seen[0])
        if before <= MEMORY_BYTES < self.extra_bytes:
            raise TooMuchMemory(f"{self.extra_bytes / 2**20:,.0f} MiB")

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._on:
            return
        if event in _FORBIDDEN:
            self._seen.append(f"{event}{arguments!r:.200}")
        elif event == "import" and arguments[0] == CANARY:
            self._seen.append(f"import {CANARY}")
        elif event == "exec" and _is_text(arguments[0]):
            self._seen.append("exec of a text")
        elif event == "open" and _is_writing(arguments) and not self._is_inside(arguments[0]):
            self._seen.append(f"write {arguments[0]!r:.200}")

    def _is_inside(self, path: Any) -> bool:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return True  # A descriptor that is open already.
        resolved = os.path.realpath(os.fsdecode(path))
        return resolved.startswith((self._folder, "/dev/"))


def peak_bytes() -> int:
    """Returns the largest resident memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _is_writing(arguments: tuple[Any, ...]) -> bool:
    mode, flags = arguments[1], arguments[2]
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & _WRITING)


def _is_text(code: Any) -> bool:
    """Returns whether code comes from a text other than the classes and annotations of a module."""
    if getattr(code, "co_filename", "") != "<string>":
        return False
    frame: FrameType | None = sys._getframe()
    files = list[str]()
    while frame is not None:
        files.append(frame.f_code.co_filename)
        frame = frame.f_back
    names = ("dataclasses.py", "typing.py")
    return not any("importlib" in name or name.endswith(names) for name in files)


def _stop(number: int, frame: object) -> None:
    raise TooSlow(f"more than {SECONDS:g} s of CPU time")
