"""What the columns of a table are for: the label, the features, and the rest."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from orbit_runner.data.tables.build import CellError, build_columns
from orbit_runner.data.tables.cell_texts import are_dates, odd_among_numbers
from orbit_runner.data.tables.columns import CATEGORY, DATE, NUMBER, TEXT, Column
from orbit_runner.data.tables.dataset import TableDataset, TableOptions, TableReader
from orbit_runner.data.tables.summary import ColumnSummary, summarize_column
from orbit_runner.data.text.lines import open_binary
from orbit_runner.errors import DataError, RunnerError, format_list, shorten, unknown_name_message
from orbit_runner.registry import TABLE_SOURCES

# A column with one of these names is the label, in this order of preference.
_LABEL_NAMES = ("label", "labels", "target", "class", "y", "species", "outcome")
# Integers with at most as many different values are taken as classes.
MOST_CLASSES = 20
# If more than half of the texts of a column differ, and more than these, it is a name or an ID.
_FEW_TEXTS = 20
_ID_NAME = re.compile(r"(.*[_\s-])?(id|uuid|guid|index|idx|rowid|row)|unnamed: 0|", re.IGNORECASE)
# A column with such a name says which rows belong together, if its values repeat.
_GROUP_ID = re.compile(r"((?i:.*[_\s-])?(?i:id|uuid|guid))|.*[a-z]I[dD]")
_GROUP = re.compile(
    r"(customer|client|user|person|patient|subject|participant|student|employee|account|household"
    r"|session|device|machine)([_\s-]?(no|nr|number|key|code))?",
    re.IGNORECASE,
)
_CODE = re.compile(r"([A-Za-z]*[_-]?)\d+")
_FEW_GROUPS = 10
# A column is one of long texts if its texts have at least as many words or characters on average.
_WORDS = 3
_CHARACTERS = 50
_SHOWN_TEXTS = 4


@dataclasses.dataclass(frozen=True)
class ColumnUse:
    """How a column is used: its kind, or why it is left out, and what its values are."""

    name: str
    kind: str  # "" if it is left out
    about: str
    column: Column | None = None
    summary: ColumnSummary | None = None
    is_group: bool = False  # Its values repeat, and say which rows belong together.

    @property
    def is_label(self) -> bool:
        """Whether the column could be the label."""
        summary = self.summary
        if summary is None or summary.missing or summary.distinct < 2:
            return False
        return self.kind in (NUMBER, CATEGORY)


@dataclasses.dataclass(frozen=True)
class TableSurvey:
    """The columns of a table."""

    uses: Sequence[ColumnUse]
    rows: int
    options: TableOptions


def survey_table(path: Path, reader: TableReader) -> TableSurvey:
    """Returns what the columns of a file are; raises `DataError` if it cannot be read."""
    options = _table_options(path, reader)
    dataset = reader.load(data_dir="", input_path=(str(path),), options=options)
    kinds = {n: kind for n, kind in dataset.kinds.items() if kind in (NUMBER, CATEGORY, DATE)}
    columns = _read_columns(dataset, kinds)
    # Texts that are numbers, as in a column of decimals that a program stored.
    texts = [
        name
        for name, column in columns.items()
        if column.kind == CATEGORY and odd_among_numbers(column.text_counts()) == ()
    ]
    if texts:
        columns = _read_columns(dataset, kinds | dict.fromkeys(texts, NUMBER))
    uses = [
        _use_of(columns[name]) if name in kinds else ColumnUse(name, "", f"has the type {kind}")
        for name, kind in dataset.kinds.items()
    ]
    rows = len(next(iter(columns.values())).values) if columns else 0
    return TableSurvey(uses, rows, options)


def _read_columns(dataset: TableDataset, kinds: dict[str, str]) -> dict[str, Column]:
    """Returns the columns; those of numbers with another text among them as texts."""
    while True:
        try:
            return build_columns(dataset, kinds)[0]
        except CellError as error:
            kinds[error.column] = CATEGORY


def _use_of(column: Column) -> ColumnUse:
    """Returns how a column is used."""
    summary = summarize_column(column, "feature")
    rows = len(column.values)

    def use(kind: str, about: str, *, is_group: bool = False) -> ColumnUse:
        return ColumnUse(column.name, kind, about, column, summary, is_group)

    if summary.missing == rows or (column.kind == NUMBER and summary.low is None):
        return use("", "has no values")
    if summary.distinct == 1 and not summary.missing:
        return use("", "has the same value in all rows")
    missing = f"; {summary.missing:,} missing" if summary.missing else ""
    distinct = f"{summary.distinct:,} different"
    if _FEW_GROUPS <= summary.distinct <= rows // 2 and _names_groups(column):
        about = f"an ID that repeats: {distinct} in {rows:,} rows{missing}"
        return use("", about, is_group=True)
    if column.kind == NUMBER:
        if _is_id(column, summary):
            return use("", "all numbers are different, as in an ID")
        return use(NUMBER, f"{summary.low:g} to {summary.high:g}, {distinct}{missing}")
    if column.kind == DATE:
        return use(DATE, f"{summary.range}, {distinct}{missing}")
    counts = {text: count for text, count in column.text_counts().items() if text}
    if are_dates(counts):
        return use(DATE, f"dates as texts, {distinct}{missing}")
    odd = odd_among_numbers(counts)
    if odd is not None:
        return use("", f"numbers, but also {', '.join(map(plain_text, odd[:_SHOWN_TEXTS]))}")
    if _are_long(counts):
        return use(TEXT, f"texts, {distinct}{missing}")
    if summary.distinct > max(_FEW_TEXTS, rows // 2):
        return use("", f"{distinct} texts in {rows:,} rows, as names and IDs are")
    return use(CATEGORY, f"{distinct}: {_top(summary)}{missing}")


def _is_id(column: Column, summary: ColumnSummary) -> bool:
    """Returns whether all numbers are different integers that count the rows, or named an ID."""
    values = column.values
    if summary.missing or summary.distinct < len(values) or not (values == np.rint(values)).all():
        return False
    counts_rows = len(values) > _FEW_TEXTS and bool((np.diff(values) == 1).all())
    return counts_rows or _ID_NAME.fullmatch(column.name.strip()) is not None


def _names_groups(column: Column) -> bool:
    """Returns whether the values of a column are IDs, by its name and their form."""
    name = column.name.strip()
    if column.kind == NUMBER:
        values = column.values[~column.is_missing()]
        is_whole = bool((values == np.rint(values)).all())
        return is_whole and bool(_GROUP_ID.fullmatch(name) or _GROUP.fullmatch(name))
    if column.kind == DATE or _GROUP_ID.fullmatch(name):
        return column.kind != DATE
    codes = [_CODE.fullmatch(text) for text in column.vocabulary]
    # Such as C0017 and C0230; numbers alone may be zip codes.
    are_codes = len({code[1] if code else "" for code in codes} - {""}) == 1 and all(codes)
    is_long = len(codes) > _FEW_TEXTS
    return (are_codes and is_long) or (bool(_GROUP.fullmatch(name)) and (are_codes or is_long))


def _are_long(counts: Mapping[str, int]) -> bool:
    cells = sum(counts.values())
    words = sum(len(text.split()) * count for text, count in counts.items()) / cells
    characters = sum(len(text) * count for text, count in counts.items()) / cells
    return len(counts) > _FEW_TEXTS and (words >= _WORDS or characters >= _CHARACTERS)


def _top(summary: ColumnSummary) -> str:
    texts = [f"{plain_text(text)} ({count:,})" for text, count in summary.top[:_SHOWN_TEXTS]]
    return ", ".join([*texts, *["…"] * (summary.distinct > _SHOWN_TEXTS)])


def choose_label(survey: TableSurvey, label: str, path: Path) -> tuple[ColumnUse, str]:
    """Returns the column to predict, and why it is this one."""
    by_name = {use.name: use for use in survey.uses}
    if label:
        if label not in by_name:
            message = unknown_name_message("column", label, [*by_name])
            raise RunnerError(f"{path}: {message}", path="--label", code="unknown-column")
        use = by_name[label]
        # Numbers that looked like an ID, and groups.
        if use.column is not None and (use.is_group or (use.column.kind, use.kind) == (NUMBER, "")):
            use = dataclasses.replace(use, kind=use.column.kind)
        if use.kind not in (NUMBER, CATEGORY):
            raise RunnerError(
                f"{path}: column {label!r} cannot be predicted: {use.about or use.kind}",
                path="--label",
                code="bad-data",
            )
        return use, "--label names it"
    for label_name in _LABEL_NAMES:
        for use in survey.uses:
            if use.name.strip().lower() == label_name and use.is_label:
                return use, "its name says so"
    usable = [use for use in survey.uses if use.is_label]
    if not usable:
        raise DataError(
            f"{path}: no column can be predicted: each is constant, an ID or a long text, or has "
            "missing values\n"
            + format_list([f"{use.name}: {use.about}" for use in survey.uses])
            + "\nadd a column with a class or a number for each row",
            code="bad-data",
        )
    last = usable[-1]
    is_last = last is survey.uses[-1]
    return last, "it is the last column" if is_last else "it is the last column that can be one"


def is_regression(use: ColumnUse) -> bool:
    """Returns whether a column has numbers to predict, rather than classes."""
    if use.kind != NUMBER or use.column is None or use.summary is None:
        return False
    values = use.column.values
    return use.summary.distinct > MOST_CLASSES or not (values == np.rint(values)).all()


def _table_options(path: Path, reader: TableReader) -> TableOptions:
    """Returns how to read a file. The delimiter is the most frequent one in its first line."""
    if reader.is_typed:
        return TableOptions(missing_values=())
    with open_binary(path) as file:
        first = file.readline(2**16).decode(errors="replace")
    known = "\t" if ".tsv" in path.suffixes else ",;\t|"
    delimiter = max(known, key=re.sub('"[^"]*"', "", first).count)
    default = TABLE_SOURCES.get("csv").load_config().__dataclass_fields__["missing_values"].default
    return TableOptions(delimiter=delimiter, missing_values=default)


def plain_text(text: str, most: int = 30) -> str:
    """Returns a text of the data as part of a comment."""
    return shorten("".join(c if c.isprintable() else " " for c in text), most)
