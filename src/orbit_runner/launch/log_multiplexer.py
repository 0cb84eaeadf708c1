"""What all members say, line by line, each line after the name of who says it."""

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


class Screen:
    """One display of many processes; every line is written whole.

    Everything goes to the launcher's stderr, with the name of the process before it, except the
    stdout of the one whose results they are: that goes to the launcher's stdout as it is, so that
    a pipe reads what it would read from `runner run`.
    """

    def __init__(self, out: IO[bytes], err: IO[bytes], *, color: bool = False) -> None:
        """Makes the display.

        Args:
            out: Where results go.
            err: Where everything else goes.
            color: Whether names have colours.
        """
        self._out, self._err, self._color = out, err, color
        self._lock = threading.Lock()
        self._names: list[str] = [LAUNCHER]
        self._width = len(LAUNCHER)

    def introduce(self, name: str) -> None:
        """Makes room for the name of a process.

        Args:
            name: The name.
        """
        with self._lock:
            if name not in self._names:
                self._names.append(name)
            self._width = max(self._width, len(name))

    def note(self, text: str) -> None:
        """Shows what the launcher itself has to say.

        Args:
            text: One line.
        """
        self.line(LAUNCHER, text.encode())

    def line(self, name: str, text: bytes) -> None:
        """Shows a line of a process.

        Args:
            name: Who says it.
            text: The line.
        """
        with self._lock:
            prefix = f"{name:<{self._width}} │"
            if self._color:
                number = self._names.index(name) if name in self._names else 0
                style = f"{_COLORS[(number - 1) % len(_COLORS)]}" if number else "1"
                prefix = f"\x1b[{style}m{prefix}\x1b[0m"
            _write(self._err, prefix.encode() + b" " + text.rstrip(b"\r\n") + b"\n")

    def result(self, text: bytes) -> None:
        """Passes a line of the results on as it is.

        Args:
            text: The line.
        """
        with self._lock:
            _write(self._out, text)


def _write(file: IO[bytes], text: bytes) -> None:
    # The reader of a pipe may be gone (`runner launch … | head -1`); the members are not to stop
    # for that, which they would if nobody read their own pipes any more.
    with contextlib.suppress(OSError, ValueError):
        file.write(text)
        file.flush()


# Before it is set up, absl's log takes no notice of TF_CPP_MIN_LOG_LEVEL. It says that a server was
# started, and once a second that a data service does not answer.
_CHATTER = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog\(\) |"
    rb"[IW]\d{4} \d\d:\d\d:[\d.]+ +\d+ (grpc_server_lib|data_service_client)\.cc:"
)


def is_chatter(text: bytes) -> bool:
    """Returns whether a line is of those that TensorFlow writes whatever it is told.

    Args:
        text: The line.
    """
    return _CHATTER.match(text) is not None


def follow(stream: IO[bytes], log: Path, show: Callable[[bytes], None]) -> threading.Thread:
    """Reads what a process says, to its end: into its log, and onto the screen.

    Args:
        stream: One end of the pipe.
        log: The file; two streams may share it.
        show: Shows a line.

    Returns:
        The thread that reads, which ends with the stream.
    """
    # Appending keeps whole lines apart where two threads write to one file.
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

    def read() -> None:
        try:
            while text := stream.readline(_LONGEST_LINE):
                # A full disk must not stop the member.
                with contextlib.suppress(OSError):
                    os.write(file, text)
                show(text)
        finally:
            os.close(file)
            stream.close()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread
