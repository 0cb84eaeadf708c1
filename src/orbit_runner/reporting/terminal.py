"""Shows sections of a report as lines for a terminal, which has no charts and pictures."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from orbit_runner.reporting.document import Cell, Facts, Part, Section, Table, Text
from orbit_runner.utils.text_table import table_lines

_GAP = 2
_MOST = 60  # characters of a name or path if the width of the terminal does not matter
# Limits of the widths of columns.
_LEAST = 12
_LEAST_KEY, _MOST_KEY = 20, 48
_LEAST_SENTENCE = 40


def section_lines(sections: Iterable[Section], width: int | None = None) -> Iterator[str]:
    """Yields the lines of sections, with an empty line between them.

    Args:
        sections: The sections, without folded ones. The parts of those with a title are indented.
        width: The width of the terminal, in characters; None to leave lines as long as they are.
    """
    return itertools.islice(_parts_lines(sections, "", width), 1, None)


def _parts_lines(parts: Iterable[Part], indent: str, width: int | None) -> Iterator[str]:
    for part in parts:
        yield from _part_lines(part, indent, width)


def _part_lines(part: Part, indent: str, width: int | None) -> Iterable[str]:
    if isinstance(part, Table):
        return _key_table(part, width) if part.keys else _table(part, indent, width)
    if isinstance(part, Facts):
        return table_lines(part.facts, indent=indent)
    if isinstance(part, Text):
        if part.kind == "code":
            return (f"{indent}  {part.text}",)
        return (
            wrapped for line in part.text.splitlines() for wrapped in _wrap(line, indent, width)
        )
    if isinstance(part, Section):
        inner = f"{indent}  " if part.title else indent
        lines = [] if part.is_folded else [*_parts_lines(part.parts, inner, width)]
        title = (f"{indent}{part.title}",) if part.title else ()
        first = 0 if indent or (lines and lines[0]) else 1  # One empty line is enough.
        return ("", *title, *lines[first:]) if lines else ()
    return ()


def _wrap(line: str, indent: str, width: int | None) -> list[str]:
    if width is None or not line:
        return [f"{indent}{line}"]
    return textwrap.wrap(
        line, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _table(table: Table, indent: str, width: int | None) -> Iterator[str]:
    rows = [*([table.head] if table.head else []), *table.rows]
    if not table.rows:
        return
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    gaps = len(indent) + _GAP * (len(sizes) - 1)
    if width is None:
        if table.fits:
            rows = [[text if " " in text else _cut(text, _MOST) for text in row] for row in rows]
    elif table.fits:
        sizes = _narrow(sizes, width - gaps, _LEAST, max(sizes))
        rows = [[_cut(*cell) for cell in zip(row, sizes, strict=True)] for row in rows]
    elif table.sentences:
        room = max(_LEAST_SENTENCE, width - gaps - sum(sizes[:-1]))
        lines = [(row, textwrap.wrap(row[-1], room) or [""]) for row in rows]
        empty = [""] * (len(sizes) - 1)
        rows = [
            [*(empty if n else row[:-1]), text]
            for row, texts in lines
            for n, text in enumerate(texts)
        ]
    yield from table_lines(rows, table.right, indent)


def _narrow(sizes: Sequence[int], room: float, least: int, most: int) -> list[int]:
    """Returns widths of columns; the widest are narrowed until all fit, but not below `least`."""
    for limit in range(max(most, least), least - 1, -1):
        narrow = [min(size, limit) for size in sizes]
        if sum(narrow) <= room:
            break
    return narrow


def _key_table(table: Table, width: int | None) -> Iterator[str]:
    """Yields a table in parts with as many columns as fit, one below the other."""
    most = _MOST_KEY if width is None else max(_LEAST_KEY, width // 3)
    rows = [
        [f"{text} *" if isinstance(text, Cell) and text.kind == "best" else text for text in row]
        for row in (table.head, *table.rows)
    ]
    cells = [
        [_cut(row[0], most), *(_cut(text, _MOST_KEY) for text in row[1:])]
        for row in rows
        if len(row) > 1
    ]
    sizes = [max(map(len, column)) for column in zip(*cells, strict=True)]
    starts, used = [1], sizes[0]
    for column, size in enumerate(sizes[1:], 1):
        if column > starts[-1] and width is not None and used + _GAP + size > width:
            starts, used = [*starts, column], sizes[0]
        used += _GAP + size
    for start, end in itertools.pairwise([*starts, len(sizes)]):
        lines = iter(table_lines([row[0], *row[start:end]] for row in cells))
        yield from [""] if start > 1 else []
        for row in rows:
            yield from ("", *row) if len(row) == 1 else [next(lines)]


def _cut(text: str, size: int) -> str:
    """Returns a text of at most `size` characters: of a name or a path, the end is kept."""
    if len(text) <= size:
        return text
    return f"{text[: size - 1]}…" if " " in text else f"…{text[1 - size :]}"
