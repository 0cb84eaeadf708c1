"""Shows sections of a report as lines for a terminal."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence

from orbit_runner.reporting.document import Best, Chart, Part, Section, Series, Table, Text
from orbit_runner.reporting.numbers import number_or_dash
from orbit_runner.reporting.svg import is_logarithmic, value_range
from orbit_runner.utils.text_table import table_lines

_GAP = 2
_MOST = 60  # characters of a name or path if the width of the terminal does not matter
# Limits of the widths of columns.
_LEAST = 12
_LEAST_KEY = 10
_LEAST_CUT_KEY = 22
_MOST_KEY = 48
_LEAST_SENTENCE = 40
_PLOT_WIDTH, _PLOT_HEIGHT = 64, 10
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def section_lines(sections: Iterable[Section], width: int | None = None) -> Iterator[str]:
    """Yields the lines of sections, with an empty line between them.

    Args:
        sections: The sections. The parts of those with a title are indented.
        width: The width of the terminal, in characters; None to leave lines as long as they are.
    """
    begun = False
    for section in sections:
        indent = "  " if section.title else ""
        lines = [*_parts_lines(section.parts, indent, width)]
        if not lines:
            continue
        if begun:
            yield ""
        begun = True
        if section.title:
            yield section.title
        yield from lines if lines[0] else lines[1:]


def _parts_lines(parts: Iterable[Part], indent: str, width: int | None) -> Iterator[str]:
    for part in parts:
        yield from _part_lines(part, indent, width)


def _part_lines(part: Part, indent: str, width: int | None) -> Iterable[str]:
    if isinstance(part, Table):
        return _key_table(part, width or math.inf) if part.keys else _table(part, indent, width)
    if isinstance(part, Chart):
        return () if part.places else ("", *_chart(part, width or _PLOT_WIDTH * 2))
    if isinstance(part, Text):
        if part.kind == "code":
            return (f"{indent}  {part.text}",)
        return (
            wrapped for line in part.text.splitlines() for wrapped in _wrap(line, indent, width)
        )
    if isinstance(part, Section):
        title = (f"{indent}{part.title}",) if part.title else ()
        lines = [*_parts_lines(part.parts, indent, width)]
        return ("", *title, *lines) if lines else ()
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


def _key_table(table: Table, width: float) -> Iterator[str]:
    """Yields a table in parts with as many columns as fit, one below the other."""
    head = ["", *(f"[{_letter(n)}] {name}" for n, name in enumerate(table.head[1:]))]
    rows = [[f"{text} *" if isinstance(text, Best) else text for text in row] for row in table.rows]
    whole = [head, *(row for row in rows if len(row) > 1)]
    longest, *sizes = (max(map(len, column)) for column in zip(*whole, strict=True))
    first = int(min(longest, max(20, width // 2)))
    for number, group in enumerate(_column_groups(sizes, width - first)):
        yield from [""] if number else []
        yield from _group_lines([head, *rows], {0: first, **group})


def _group_lines(rows: Sequence[Sequence[str]], sizes: dict[int, int]) -> Iterator[str]:
    for row in rows:
        if len(row) == 1:
            yield from ("", *row)
            continue
        cells = (f"{_cut(row[n], size):<{size}}" for n, size in sizes.items())
        yield (" " * _GAP).join(cells).rstrip()


def _column_groups(longest: Sequence[int], width: float) -> Iterator[dict[int, int]]:
    """Yields the widths of the columns that fit side by side, by their numbers."""
    least = [max(_LEAST_KEY, size) for size in longest]
    sizes = _narrow(least, width - _GAP * len(least), _LEAST_CUT_KEY, _MOST_KEY)
    group: dict[int, int] = {}
    used = 0
    for column, size in enumerate(sizes, 1):
        if group and used + size + _GAP > width:
            yield group
            group = {}
            used = 0
        group[column] = int(min(size, max(_LEAST_KEY, width - _GAP)))
        used += size + _GAP
    if group:
        yield group


def _cut(text: str, size: int) -> str:
    """Returns a text of at most `size` characters: of a name or a path, the end is kept."""
    if len(text) <= size:
        return text
    return f"{text[: size - 1]}…" if " " in text else f"…{text[1 - size :]}"


def _chart(chart: Chart, width: int) -> Iterator[str]:
    """Yields the lines of a plot in which each series has a letter."""
    points = [point for series in chart.series for point in series.points.items()]
    finite = [value for _, value in points if math.isfinite(value)]
    if not finite:
        yield f"{chart.title}: no values"
        return
    first, last = min(step for step, _ in points), max(step for step, _ in points)
    low, high = value_range(finite)
    is_log = is_logarithmic(chart.title, low, high)
    scale: Callable[[float], float] = math.log if is_log else float
    height = (scale(high) - scale(low)) or 1.0
    yield f"{chart.title} (log)" if is_log else chart.title
    columns = max(16, min(_PLOT_WIDTH, width - 14))
    cells = [[" "] * columns for _ in range(_PLOT_HEIGHT)]
    for series in chart.series:
        letter = _letter(series.color)
        for step, value in _finite_points(series):
            column = round((step - first) / ((last - first) or 1) * (columns - 1))
            row = round((scale(high) - scale(value)) / height * (_PLOT_HEIGHT - 1))
            cells[row][column] = letter if cells[row][column] in (" ", letter) else "*"
    for row, line in enumerate(cells):
        label = {0: high, _PLOT_HEIGHT - 1: low}.get(row)
        shown = "" if label is None else number_or_dash(label)
        yield f"{shown:>10} │{''.join(line)}".rstrip()
    yield f"{'':>10} └{'─' * columns}"
    start, end = f"{first:,}", f"step {last:,}"
    yield f"{'':>12}{start}{end:>{columns - len(start)}}"


def _finite_points(series: Series) -> Iterator[tuple[int, float]]:
    return ((step, value) for step, value in series.points.items() if math.isfinite(value))


def _letter(index: int) -> str:
    return _LETTERS[index % len(_LETTERS)]
