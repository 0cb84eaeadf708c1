"""Messages of a run: records of the logger `orbit_runner`.

Programs that use this package show them like those of any library. The command line prints notes as
lines, and shows the current phase in its progress display.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

LOGGER = logging.getLogger("orbit_runner")


def note(text: str) -> None:
    """Logs a note, or a warning if the text begins with `warning`."""
    LOGGER.log(logging.WARNING if text.startswith("warning") else logging.INFO, "%s", text)


def phase(text: str) -> None:
    """Logs the start of a phase, such as `building the model`."""
    LOGGER.info("%s …", text, extra={"phase": text})


class _Handler(logging.Handler):
    def __init__(self, note: Callable[[str], None], phase: Callable[[str], None]) -> None:
        super().__init__()
        self._note, self._phase = note, phase

    def emit(self, record: logging.LogRecord) -> None:
        text = getattr(record, "phase", None)
        if text is None:
            self._note(record.getMessage())
        else:
            self._phase(text)


@contextlib.contextmanager
def log_scope(
    note: Callable[[str], None], phase: Callable[[str], None] = lambda text: None
) -> Iterator[None]:
    """Passes log messages to `note` or `phase`, and to no other handler, in a `with` block."""
    handler = _Handler(note, phase)
    level, propagates, handlers = LOGGER.level, LOGGER.propagate, LOGGER.handlers[:]
    LOGGER.handlers[:], LOGGER.propagate = [handler], False
    LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOGGER.handlers[:], LOGGER.propagate = handlers, propagates
        LOGGER.setLevel(level)
