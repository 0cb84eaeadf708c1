"""Lines that change at the bottom of a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.console import Console, ConsoleRenderable
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

# Each costs about a millisecond of training. Numbers change once a second.
_REFRESHES_PER_SECOND = 2


class LiveLines(Live):
    """Lines that are drawn again and again, and remain intact if the terminal becomes narrower."""

    def __init__(self, console: Console, get_lines: Callable[[int], list[Text]]) -> None:
        self._get_lines = get_lines
        self._widths: list[int] = []  # of the current lines
        self._drawn_widths: list[int] = []  # of the lines on the screen
        self._drawn_columns = 0  # of the terminal when they were drawn
        super().__init__(
            console=console,
            get_renderable=self._text,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=True,
            # What code prints to a file or pipe must still arrive there.
            redirect_stdout=sys.stdout.isatty(),
            vertical_overflow="crop",
        )

    def _text(self) -> Text:
        shown = self._get_lines(self.console.width)
        self._widths = [line.cell_len for line in shown]
        return Text("\n", no_wrap=True, overflow="crop").join(shown)

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Returns what is printed, preceded by codes that erase the previous lines."""
        found = super().process_renderables(renderables)
        columns, before = self.console.width, self._drawn_columns
        wrapped = sum((min(width, before) - 1) // columns for width in self._drawn_widths)
        self._drawn_widths, self._drawn_columns = self._widths, columns
        return [_erase(wrapped), *found] if columns < before and wrapped else found


def _erase(rows: int) -> Control:
    """Returns codes that erase the rows above the cursor that a narrower terminal has added.

    Rich itself erases as many rows as it has written, beginning at the cursor.
    """
    up_and_erase = ((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2))
    begin = (ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))
    return Control(*begin, *(up_and_erase * rows))
