"""Rows of texts as aligned lines."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence


def table_lines(
    rows: Iterable[Sequence[str]], right: Collection[int] = (), indent: str = ""
) -> list[str]:
    """Returns a line for each row. Columns are as wide as their longest text, two spaces apart.

    Args:
        rows: The rows, all with the same number of texts.
        right: The columns that are aligned to the right; negative numbers count from the last.
        indent: What each line begins with.
    """
    rows = [*rows]
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
