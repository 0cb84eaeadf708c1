"""The cursor of the terminal, which a live display hides."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType

_hidden = False


@contextlib.contextmanager
def hidden_cursor_scope() -> Iterator[None]:
    """Shows the cursor again if SIGTERM ends the process within a `with` block.

    The block itself hides and shows the cursor. Code that ends the process without leaving the
    block calls `show_cursor`.
    """
    import threading  # Not at the top, because all commands import this module.

    global _hidden
    in_main = threading.current_thread() is threading.main_thread()
    handles = in_main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if handles:
        signal.signal(signal.SIGTERM, _terminate)
    _hidden = True
    try:
        yield
    finally:
        _hidden = False
        if handles:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def show_cursor() -> None:
    """Shows the cursor if a display has hidden it."""
    if _hidden:
        with contextlib.suppress(OSError):
            os.write(2, b"\n\x1b[?25h")


def _terminate(number: int, frame: FrameType | None) -> None:
    show_cursor()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
