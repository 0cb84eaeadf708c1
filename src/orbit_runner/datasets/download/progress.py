"""Progress of downloads: a bar on a terminal, else a line every few seconds."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from orbit_runner.datasets.published import format_bytes

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

_LINE_SECONDS = 5.0


class Progress:
    """Prints plain lines on standard error."""

    def __init__(self) -> None:
        self._name, self._total = "", 0
        self._since = self._last_line = time.monotonic()
        self._first: int | None = None

    @contextlib.contextmanager
    def file(self, name: str, total: int) -> Iterator[None]:
        """Prints the file that is downloaded within a `with` block; `total` is its bytes."""
        self._name, self._total, self._first = name, total, None
        self._since = self._last_line = time.monotonic()
        self.note(f"{name}: {format_bytes(total)} …")
        yield

    def at(self, done: int) -> None:
        """Prints the progress every few seconds; `done` is the bytes so far."""
        now = time.monotonic()
        if self._first is None:
            self._first = done
        if now - self._last_line > _LINE_SECONDS:
            self._last_line = now
            rate = max(0, done - self._first) / (now - self._since)
            left = f", {(self._total - done) / rate:.0f} s left" if rate else ""
            self.note(
                f"{self._name}: {format_bytes(done)} of {format_bytes(self._total)}, "
                f"{format_bytes(int(rate))}/s{left}"
            )

    def note(self, text: str) -> None:
        """Prints a line."""
        print(text, file=sys.stderr, flush=True)


class BarProgress(Progress):
    """Shows a bar for the current file on a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self._bars: Bars | None = None

    @contextlib.contextmanager
    def file(self, name: str, total: int) -> Iterator[None]:
        """Shows a bar within a `with` block."""
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as Bars

        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        with Bars(*columns, console=Console(stderr=True)) as self._bars:
            self._task = self._bars.add_task(name, total=total)
            yield
        self._bars = None

    def at(self, done: int) -> None:
        """Updates the bar."""
        if self._bars is not None:
            self._bars.update(self._task, completed=done)

    def note(self, text: str) -> None:
        """Prints a line above the bar."""
        if self._bars is None:
            super().note(text)
        else:
            self._bars.console.print(text, markup=False, highlight=False)


def for_standard_error() -> Progress:
    """Returns a bar if standard error is a terminal, else plain lines."""
    return BarProgress() if sys.stderr.isatty() else Progress()
