"""The output of all members, each line prefixed with the name of its process."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

_LONGEST_LINE = 1 << 16
_COLORS = (36, 33, 35, 32, 34, 96, 93, 95)
LAUNCHER = "launcher"


class LogMultiplexer:
    """Shows the output of several processes, without mixing lines.

    Everything goes to `err`, the launcher's stderr, prefixed with the name of the process, except
    the stdout of the process that prints the results. That goes to `out`, the launcher's stdout,
    unchanged, so that a pipe reads what it would read from `runner run`.
    """

    def __init__(self, out: IO[bytes], err: IO[bytes], *, color: bool = False) -> None:
        self._out, self._err, self._color = out, err, color
        self._lock = threading.Lock()
        self._names: list[str] = [LAUNCHER]
        self._width = len(LAUNCHER)

    def add_name(self, name: str) -> None:
        """Makes room for the name of a process."""
        with self._lock:
            if name not in self._names:
                self._names.append(name)
            self._width = max(self._width, len(name))

    def note(self, text: str) -> None:
        """Shows a message of the launcher itself."""
        self.write_line(LAUNCHER, text.encode())

    def write_line(self, name: str, text: bytes) -> None:
        """Shows a line of a process."""
        with self._lock:
            prefix = f"{name:<{self._width}} │"
            if self._color:
                number = self._names.index(name) if name in self._names else 0
                style = f"{_COLORS[(number - 1) % len(_COLORS)]}" if number else "1"
                prefix = f"\x1b[{style}m{prefix}\x1b[0m"
            _write(self._err, prefix.encode() + b" " + text.rstrip(b"\r\n") + b"\n")

    def write_result(self, text: bytes) -> None:
        """Writes a line of the results unchanged."""
        with self._lock:
            _write(self._out, text)


def _write(file: IO[bytes], text: bytes) -> None:
    # The reader of a pipe may have exited (`runner launch … | head -1`). That must not stop the
    # members, which would block if their own pipes were not read any more.
    with contextlib.suppress(OSError, ValueError):
        file.write(text)
        file.flush()


# Until absl's log is initialized, it ignores TF_CPP_MIN_LOG_LEVEL. It reports that a server was
# started, and once a second that a data service does not respond.
_CHATTER = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog\(\) |"
    rb"[IW]\d{4} \d\d:\d\d:[\d.]+ +\d+ (grpc_server_lib|data_service_client)\.cc:"
)


def is_chatter(text: bytes) -> bool:
    """Returns whether a line is one that TensorFlow writes at any log level."""
    return _CHATTER.match(text) is not None


def start_log_reader(
    stream: IO[bytes], log: Path, show: Callable[[bytes], None]
) -> threading.Thread:
    """Starts a thread that writes each line of a stream to a log file and passes it to `show`.

    Returns the thread, which ends with the stream. Two streams may share a log file.
    """
    # Appending keeps lines whole if two threads write to the same file.
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

    def copy_lines() -> None:
        try:
            while text := stream.readline(_LONGEST_LINE):
                # The last line may lack its end, and the other stream may write after it.
                ended = len(text) == _LONGEST_LINE or text.endswith(b"\n")
                # A full disk must not stop the member.
                with contextlib.suppress(OSError):
                    os.write(file, text if ended else text + b"\n")
                show(text)
        finally:
            os.close(file)
            stream.close()

    thread = threading.Thread(target=copy_lines, daemon=True)
    thread.start()
    return thread
