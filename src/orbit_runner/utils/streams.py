"""Standard streams that may be closed, full, or unable to encode some characters.

All commands print with `print_result` and `print_message`: names that others chose, such as those
of files, settings and classes, must not control the terminal.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import select
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from orbit_runner.errors import ClosedPipeError, OutputError

# Control characters but tab and newline, and those that override the direction of a text.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible_text(text: str) -> str:
    r"""Returns a text with control characters but tab and newline as in JSON, such as `\u001b`."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def line_text(text: str) -> str:
    """Returns a text on one line, with control characters as in JSON."""
    return visible_text(text).replace("\n", "\\n").replace("\t", "\\t")


def print_result(text: str, *, is_data: bool = False) -> None:
    """Prints a result of a command on standard output, with one newline at the end.

    With `is_data`, for programs, it is UTF-8 in any locale. Bytes of arguments that are not UTF-8,
    such as in a file name, are written unchanged.
    """
    if is_data and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    print(visible_text(text.removesuffix("\n")), flush=True)


def print_message(text: str) -> None:
    """Prints on standard error what is no result: messages, progress and errors."""
    print(visible_text(text), file=sys.stderr, flush=True)


def is_terminal(stream: TextIO | None) -> bool:
    """Returns whether a standard stream is a terminal; a program without a console has none."""
    return stream is not None and stream.isatty()


class TolerantFile(io.FileIO):
    """A file descriptor that stores write errors instead of raising them.

    A run must not end because nobody reads its progress, or because the disk with its output is
    full. The descriptor stays open when this object is closed.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        # The first write error, if any.
        self.error: OSError | None = None

    def write(self, data: bytes | memoryview) -> int:  # type: ignore[override]
        """Writes all data or drops what cannot be written. Always returns the size in bytes."""
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while rest:
                count = super().write(rest)
                if count is None:  # A non-blocking descriptor, such as one end of a pty.
                    select.select([], [self], [], 1.0)
                rest = rest[count or 0 :]
        except OSError as error:
            self.error = self.error or error
        return size


def install_tolerant_streams() -> None:
    """Replaces `sys.stdout` and `sys.stderr`, and opens the null device for closed streams.

    Otherwise, the next file that is opened would get the descriptor of the closed stream, and
    TensorFlow's native code would write its log into that file.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # Takes the lowest free descriptor: this one.
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = (
        open_tolerant_stream(1, sys.stdout),
        open_tolerant_stream(2, sys.stderr),
    )


def open_tolerant_stream(descriptor: int, like: TextIO | None = None) -> TextIO:
    """Returns a text stream that never raises errors because of its reader, disk or encoding.

    Its encoding and buffering are those of `like`, the stream that it replaces.
    """
    file: Any = TolerantFile(descriptor)
    unbuffered = bool(getattr(like, "write_through", False))
    return io.TextIOWrapper(
        file if unbuffered else io.BufferedWriter(file),
        encoding=getattr(like, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=descriptor != 1 or file.isatty(),
        write_through=unbuffered,
    )


@contextlib.contextmanager
def discard_native_output_scope() -> Iterator[None]:
    """Discards what native code writes to the descriptor of standard error in a `with` block.

    `sys.stderr` still works.
    """
    replaced = sys.stderr
    stream = None
    descriptor = os.dup(2)
    if _descriptor(replaced) == 2:
        stream = sys.stderr = open_tolerant_stream(descriptor, replaced)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)
    try:
        yield
    finally:
        os.dup2(descriptor, 2)
        if stream is not None:
            stream.flush()
            sys.stderr = replaced
        os.close(descriptor)


def _descriptor(stream: TextIO | None) -> int:
    try:
        return -1 if stream is None else stream.fileno()
    except (OSError, ValueError):
        return -1


def check_stdout() -> None:
    """Flushes standard output, and raises an error if some of it could not be written.

    Raises ClosedPipeError if the reader of the pipe has exited, and OutputError for other errors,
    such as a full disk.
    """
    if sys.stdout is None:
        return
    sys.stdout.flush()
    error = getattr(_raw_file(sys.stdout), "error", None)
    if error is None:
        return
    if error.errno == errno.EPIPE:
        raise ClosedPipeError("the reader of standard output has exited")
    raise OutputError(
        f"the results could not be written to standard output: {error.strerror}\n"
        "the command itself has completed; the results of a run are in run.json in its directory"
    )


def _raw_file(stream: TextIO) -> object:
    buffer = getattr(stream, "buffer", None)
    return getattr(buffer, "raw", buffer)
