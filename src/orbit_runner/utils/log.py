"""What a run says to people: records of the logger `orbit_runner`.

A program that uses this package shows them as it shows those of any library. The command line shows
notes as lines, and what the run does next in its progress display.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

LOGGER = logging.getLogger("orbit_runner")


def note(text: str) -> None:
    """Logs something worth a line of its own; a text that begins with `warning` as a warning."""
    LOGGER.log(logging.WARNING if text.startswith("warning") else logging.INFO, "%s", text)


def phase(text: str) -> None:
    """Logs what the run does next, such as `building the model`."""
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
    """Passes what is logged to functions, and to nobody else, for the time of a `with` block.

    Args:
        note: Called with each note.
        phase: Called with what the run does next.
    """
    handler = _Handler(note, phase)
    level, propagates, handlers = LOGGER.level, LOGGER.propagate, LOGGER.handlers[:]
    LOGGER.handlers[:], LOGGER.propagate = [handler], False
    LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOGGER.handlers[:], LOGGER.propagate = handlers, propagates
        LOGGER.setLevel(level)
