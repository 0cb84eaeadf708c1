"""What a report shows: sections of tables, charts, pictures and texts.

A reporter builds sections once. `terminal.py` prints them, and `html.py` writes them as a page.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

# Columns of example tables with numbers.
_NUMBERS = ("row", "example", "step", "epoch", "position", "record", "offset",
            "line", "user", "item", "label")  # fmt: skip


class Cell(str):
    """A cell of a table that a page colors, links or completes by a bar.

    Attributes:
        kind: "best" for the best value of a row, or a color: "good", "bad" or "soft"; "" for none.
        address: Where a link leads; "" for none.
        bar: Two shares from 0 to 1: the length of a bar in front of the text, and the share that
            chance alone would give, which is marked in it.
        shade: How strong the background is, from 0 to 1; None if the text has the color.
    """

    kind: str
    address: str
    bar: tuple[float, float] | None
    shade: float | None

    def __new__(
        cls,
        text: str,
        kind: str = "",
        *,
        address: str = "",
        bar: tuple[float, float] | None = None,
        shade: float | None = None,
    ) -> Cell:
        """Returns the text of the cell with what a page adds to it."""
        cell = super().__new__(cls, text)
        cell.kind, cell.address, cell.bar, cell.shade = kind, address, bar, shade
        return cell


class Joined(str):
    """A cell that consists of several ones, with spaces between them."""

    cells: Sequence[str]

    def __new__(cls, cells: Sequence[str]) -> Joined:
        """Returns the text of the cells."""
        joined = super().__new__(cls, " ".join(cells))
        joined.cells = cells
        return joined


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of texts.

    Attributes:
        rows: The rows.
        head: The titles of the columns; empty to have none.
        right: The columns that are aligned to the right; negative numbers count from the last one.
        fits: Whether a terminal cuts long texts, so that the rows fit in its width.
        sentences: Whether the last column has sentences, which are broken into lines.
        keys: Whether the columns after the first are series of charts; a page shows how these are
            drawn, and a terminal shows columns that do not fit one below the other. A row with a
            single text is a heading of the rows below it.
        is_matrix: Whether a page shows a matrix with small cells.
    """

    rows: Sequence[Sequence[str]]
    head: Sequence[str] = ()
    right: Collection[int] = ()
    fits: bool = False
    sentences: bool = False
    keys: bool = False
    is_matrix: bool = False

    @property
    def columns(self) -> int:
        """The number of columns."""
        return max((len(row) for row in (self.head, *self.rows)), default=0)


@dataclasses.dataclass(frozen=True)
class Series:
    """A line of a chart.

    Attributes:
        name: The name in the legend.
        points: Values by step or another number, in ascending order; NaN where there is none.
        color: The index of the color.
        band: The lowest and highest value by step, drawn as an area behind the line, or as a
            vertical line if there is one step.
        quiet: Whether the line is thin and gray, without dots and without a legend. A single point
            is a dot, with the name as its title.
        best: The step of the best value, which a page marks; None to mark none.
    """

    name: str
    points: Mapping[Any, float]
    color: int = 0
    band: Mapping[Any, tuple[float, float]] = dataclasses.field(default_factory=dict)
    quiet: bool = False
    best: float | None = None


@dataclasses.dataclass(frozen=True)
class Chart:
    """Values by step, which only a page shows. Those of a loss may have a logarithmic axis.

    Attributes:
        title: The name of the values.
        series: The lines.
        x_label: The title of the horizontal axis.
        marks: Steps at which a page has a vertical line, with their meaning.
        places: Names of the steps 0, 1, ….
        is_x_log: Whether the horizontal axis is logarithmic.
    """

    title: str
    series: Sequence[Series]
    x_label: str = "step"
    marks: Mapping[int, str] = dataclasses.field(default_factory=dict)
    places: Sequence[str] = ()
    is_x_log: bool = False


@dataclasses.dataclass(frozen=True)
class ParallelAxis:
    """An axis of parallel coordinates.

    Attributes:
        name: The name of the values.
        path: The long name, which a page shows if the pointer is on the short one.
        is_log: Whether the axis is logarithmic.
        places: Names of the values 0, 1, ….
    """

    name: str
    path: str
    is_log: bool = False
    places: Sequence[str] = ()


SHADES = 6  # of the lines of parallel coordinates


@dataclasses.dataclass(frozen=True)
class Parallel:
    """Parallel coordinates, which only a page shows: an axis for each value, a line for each thing.

    Attributes:
        title: What the chart shows, for those who cannot see it.
        axes: The axes. The last one is that of the result.
        series: The lines, in the order in which they are drawn, with their values by the number of
            the axis; some may lack a result. The color is a shade, from 0 for the best results to
            `SHADES` - 1.
        best: The name of the line in the legend whose `best` is set.
        lost: The name of those without a result.
    """

    title: str
    axes: Sequence[ParallelAxis]
    series: Sequence[Series]
    best: str = "best"
    lost: str = "no result"


@dataclasses.dataclass(frozen=True)
class HeatMap:
    """A large matrix as colored squares, which only a page shows.

    Attributes:
        title: The title.
        size: The number of rows and of columns.
        cells: Row, column, share from 0 to 1, and whether the cell is right.
    """

    title: str
    size: int
    cells: Sequence[tuple[int, int, float, bool]]


@dataclasses.dataclass(frozen=True)
class Facts:
    """A few facts, which a page shows in large letters: name, value and note of each."""

    facts: Sequence[tuple[str, str, str]]


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture as it is in a page: a PNG file in base64, and the text below it."""

    png: str
    caption: str = ""


@dataclasses.dataclass(frozen=True)
class Pictures:
    """Pictures side by side, which only a page shows."""

    pictures: Sequence[Picture]


@dataclasses.dataclass(frozen=True)
class Text:
    """A paragraph.

    Attributes:
        text: The text.
        kind: "", "soft", "good", "bad", "code" for a command, or "file" for the contents of a file.
        is_bold: Whether a page shows it in bold letters.
    """

    text: str
    kind: str = ""
    is_bold: bool = False


@dataclasses.dataclass(frozen=True)
class Section:
    """Parts below a title. A section whose parts show nothing is left out.

    Attributes:
        title: The title; "" for none. A page begins it with a capital letter.
        parts: The contents. A section in a section is a part of a page with a smaller title.
        is_folded: Whether a page shows the contents only after a click on the title, and a terminal
            leaves them out.
    """

    title: str
    parts: Sequence[Part]
    is_folded: bool = False


Part = Table | Facts | Chart | Parallel | HeatMap | Pictures | Text | Section


def example_table(rows: Sequence[Mapping[str, object]]) -> Table:
    """Returns a table of what is known of some examples: a column for each name in any row."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return Table(
        [[_cell(row.get(name)) for name in names] for row in rows],
        head=names,
        right=[column for column, name in enumerate(names) if name in _NUMBERS],
        fits=True,
    )


def limited_examples(rows: Sequence[Mapping[str, object]], count: int) -> list[Part]:
    """Returns a table of the rows that are shown, and how many of all `count` rows are not."""
    more = count - len(rows)
    note = [Text(f"… and {more:,} more; --all shows all of them")] if more > 0 else []
    return [example_table(rows), *note] if count else [Text("none")]


def _cell(value: object, *, inner: bool = False) -> str:
    if value is None or value == {}:
        return "-" if value is None else ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        parts = (f"{key} {_cell(item, inner=True)}" for key, item in value.items())
        return (", " if inner else "; ").join(parts)
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)
