"""Rows of texts as aligned lines."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence

from orbit_runner.utils.streams import is_terminal, line_text

# What each kind of a table for a document writes instead of its special characters.
_ESCAPES = {
    "markdown": {character: f"\\{character}" for character in "\\|*_`<"},
    "latex": {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
}
TABLE_KINDS = tuple(_ESCAPES)
_LEAST = 20  # characters of a description on a line


def terminal_width() -> int | None:
    """Returns the width of the terminal of standard output; None for a file or another program."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None


def described_lines(
    texts: Mapping[str, str],
    width: int | None = None,
    name_width: int = 0,
    indent: str = "  ",
) -> list[str]:
    """Returns lines with a name and its description, which is broken into lines.

    Args:
        texts: The description of each name.
        width: The width of the terminal; None to break no description.
        name_width: The least width of the column of names.
        indent: What each line begins with.
    """
    column = max(name_width, *map(len, texts)) if texts else name_width
    if width is not None:
        column = min(column, max(name_width, width // 2))
    lines = []
    for name, text in texts.items():
        start = f"{indent}{name:<{column}}  "
        parts = [text]
        if width is not None:
            room = max(_LEAST, width - len(indent) - column - 2)
            parts = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
            if len(name) > column:  # The description begins on the next line.
                parts = ["", *parts]
        lines.append(f"{start}{''.join(parts[:1])}".rstrip())
        lines += [f"{indent}{'':<{column}}  {part}" for part in parts[1:]]
    return lines


def table_lines(
    rows: Iterable[Sequence[str]], right: Collection[int] = (), indent: str = ""
) -> list[str]:
    """Returns a line for each row. Columns are as wide as their longest text, two spaces apart.

    Args:
        rows: The rows, all with the same number of texts.
        right: The columns that are aligned to the right; negative numbers count from the last.
        indent: What each line begins with.
    """
    rows = [[*map(line_text, row)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned_right = {column % len(widths) for column in right} if widths else set()
    lines = []
    for row in rows:
        cells = [
            text.rjust(width) if column in aligned_right else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(f"{indent}{'  '.join(cells)}".rstrip())
    return lines


def markup_lines(rows: Sequence[Sequence[str]], kind: str) -> list[str]:
    """Returns a table as `markdown` or `latex`, with the first row as its head."""
    columns = max(map(len, rows))
    escapes = str.maketrans(_ESCAPES[kind])
    cells = [
        [line_text(text).translate(escapes) for text in (*row, *[""] * (columns - len(row)))]
        for row in rows
    ]
    if kind == "latex":
        lines = [f"{' & '.join(row)} " + r"\\" for row in cells]
        begin = rf"\begin{{tabular}}{{{'l' * columns}}}"
        return [begin, lines[0], r"\hline", *lines[1:], r"\end{tabular}"]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return [lines[0], f"|{' --- |' * columns}", *lines[1:]]
