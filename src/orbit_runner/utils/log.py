"""Messages of a run: records of the logger `orbit_runner`.

Programs that use this package show them like those of any library. The command line prints notes as
lines, and shows the current phase in its progress display.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from orbit_runner.utils.streams import print_message

LOGGER = logging.getLogger("orbit_runner")


class Messages(Protocol):
    """The interface of an object that shows messages."""

    def note(self, text: str) -> None:
        """Shows a note."""

    def phase(self, text: str, *, minor: bool = False) -> None:
        """Shows the name of the next phase."""

    def detail(self, text: str, fraction: float | None = None) -> None:
        """Shows how far the current phase is; `fraction` is from 0 to 1, None if unknown."""


def note(text: str) -> None:
    """Logs a note, or a warning if the text begins with `warning`."""
    LOGGER.log(logging.WARNING if text.startswith("warning") else logging.INFO, "%s", text)


@functools.lru_cache(maxsize=256)
def note_once(text: str) -> None:
    """Logs a note, unless this process has logged it before. It may name files of any name."""
    note(text.encode(errors="backslashreplace").decode())


def phase(text: str, *, minor: bool = False) -> None:
    """Logs the start of a phase, such as `building the model`.

    A minor phase is usually short and occurs often, such as a save. Its record has the level DEBUG.
    """
    LOGGER.log(logging.DEBUG if minor else logging.INFO, "%s …", text, extra={"phase": text})


def detail(text: str, fraction: float | None = None) -> None:
    """Logs how far the current phase is, such as `counting records: 3 of 8 files`."""
    LOGGER.info("%s", text, extra={"detail": text, "fraction": fraction})


class PlainMessages:
    """Prints notes and details on standard error. Does not show phases."""

    def __init__(self, print_line: Callable[[str], None] | None = None) -> None:
        self._print = print_line or print_message

    def note(self, text: str) -> None:
        """Prints the note."""
        self._print(text)

    def phase(self, text: str, *, minor: bool = False) -> None:
        """Prints nothing."""

    def detail(self, text: str, fraction: float | None = None) -> None:
        """Prints the text."""
        self._print(text)


class _Handler(logging.Handler):
    def __init__(self, messages: Messages) -> None:
        super().__init__()
        self._messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        values = vars(record)
        if "phase" in values:
            self._messages.phase(values["phase"], minor=record.levelno < logging.INFO)
        elif "detail" in values:
            self._messages.detail(values["detail"], values["fraction"])
        elif record.levelno >= logging.INFO:
            self._messages.note(_format_message(record))


def _format_message(record: logging.LogRecord) -> str:
    """Returns the message, which begins with `warning` or `error` if its level is one of these."""
    text = record.getMessage()
    if record.levelno < logging.WARNING or is_warning(text):
        return text
    return f"{'error' if record.levelno >= logging.ERROR else 'warning'}: {text}"


def is_warning(text: str) -> bool:
    """Returns whether a note is a warning or an error."""
    return text.startswith(("warning", "error"))


@contextlib.contextmanager
def log_scope(messages: Messages) -> Iterator[None]:
    """Passes log messages to an object, and to no other handler, in a `with` block."""
    level = LOGGER.level
    propagates = LOGGER.propagate
    handlers = LOGGER.handlers[:]
    LOGGER.handlers[:] = [_Handler(messages)]
    LOGGER.propagate = False
    LOGGER.setLevel(logging.DEBUG)  # Minor phases have this level.
    try:
        yield
    finally:
        LOGGER.handlers[:] = handlers
        LOGGER.propagate = propagates
        LOGGER.setLevel(level)


_PATIENCE_SECONDS = 2.0


class Progress:
    """Logs how far an operation is, at most every two seconds."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._last_logged = time.monotonic()

    def __call__(self, so_far: str) -> None:
        """Logs how far the operation is, if a message is due."""
        if time.monotonic() - self._last_logged > _PATIENCE_SECONDS:
            self._last_logged = time.monotonic()
            detail(f"{self._what}: {so_far}")
