"""The columns of a table in memory. Does not import TensorFlow, to report errors early."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from orbit_runner.data.dataset import Dataset, joined_fields
from orbit_runner.data.places import Places
from orbit_runner.errors import (
    DataError,
    format_count,
    nearest_name_hint,
    shorten,
    unknown_name_message,
)

# The kinds of columns. A key is only hashed, to determine the part that a row belongs to. A text
# becomes a category, too, but the text itself, and not its normal form.
NUMBER, CATEGORY, TEXT, KEY = "number", "category", "text", "key"
# A date, or a date with a time.
DATE = "date"
# A number whose kind was inferred from integers. A leading zero, which codes have, is an error.
INTEGER = "integer"
MISSING = -1
MISSING_DATE = np.iinfo(np.int64).min
DAY_SECONDS = 86_400
# Python refuses to convert longer texts to integers.
_MOST_DIGITS = 4300


@dataclasses.dataclass(frozen=True, eq=False)
class Column:
    """A column of a table.

    Attributes:
        name: Its name in the files.
        kind: `number`, `category`, `date` or `key`.
        values: [n]. Numbers are float32, NaN if missing. Categories are int32 indices into the
            vocabulary, -1 if missing. Dates are int64 seconds since 1970, `MISSING_DATE` if
            missing. Keys are uint64 hashes of the texts.
        vocabulary: The different texts of a category: in the order that the files declare, if they
            do; else sorted, by value if all are integers.
    """

    name: str
    kind: str
    values: np.ndarray
    vocabulary: tuple[str, ...] = ()

    def is_missing(self) -> np.ndarray:
        """Returns which values are missing, bool [n]."""
        if self.kind == NUMBER:
            return np.isnan(self.values)
        if self.kind == DATE:
            return self.values == MISSING_DATE
        return self.values == MISSING if self.kind == CATEGORY else np.zeros(len(self.values), bool)

    def text_counts(self) -> dict[str, int]:
        """Returns the number of rows with each text of a category, "" for missing values.

        Texts that no row has are left out. The order is that of the vocabulary, "" first.
        """
        # Faster than `np.unique`, which sorts all rows.
        counts = np.bincount(self.values + 1, minlength=len(self.vocabulary) + 1)
        texts = ("", *self.vocabulary)
        return {texts[code]: int(counts[code]) for code in np.flatnonzero(counts)}

    def numbers(self, texts: Sequence[str], *, first: int = 0, other: int = -1) -> np.ndarray:
        """Returns the place of each row's text among `texts`, counted from `first`: int32 [n].

        `other` stands for a text that is not among them. A missing value has the text "".
        """
        index = {text: number for number, text in enumerate(texts, first)}
        # The last text is that of missing values, whose code is -1.
        table = [index.get(text, other) for text in (*self.vocabulary, "")]
        return np.array(table, np.int32)[self.values]

    def text(self, row: int) -> str:
        """Returns a value as text, "" if it is missing."""
        if self.kind == CATEGORY:
            code = int(self.values[row])
            return "" if code == MISSING else self.vocabulary[code]
        value = self.values[row]
        if self.kind == DATE:
            return date_text(int(value))
        return "" if self.kind == NUMBER and np.isnan(value) else f"{value:.6g}"

    def take(self, rows: np.ndarray | slice) -> Column:
        """Returns the column with some of its rows."""
        return dataclasses.replace(self, values=self.values[rows])


def date_text(seconds: int) -> str:
    """Returns a date, with the time unless that is midnight; "" if it is missing."""
    if seconds == MISSING_DATE:
        return ""
    text = str(np.datetime64(seconds, "s"))
    return text.removesuffix("T00:00:00")


@dataclasses.dataclass(frozen=True, eq=False)
class TablePart(Dataset):
    """Rows of a table: all of them, or those that a section of the config reads.

    Attributes:
        name: Name of the data source, for messages.
        columns: The columns that are used, by name, with all rows of the table.
        places: The rows of the files; for arrays, of the arrays.
        files: The files that the columns were read from, if any.
        origins: The source of a mixture that each row comes from, integers [k]; None if there is
            only one.
        deciding: The columns that decide on the part of a row, and have another kind in `columns`.
    """

    name: str
    columns: Mapping[str, Column]
    places: Places
    files: tuple[Path, ...] = ()
    origins: np.ndarray | None = None
    deciding: Mapping[str, Column] = dataclasses.field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.places.size

    def select(self, rows: np.ndarray) -> TablePart:
        """Returns some of these rows."""
        return dataclasses.replace(self, places=self.places.select(rows))

    def column(self, name: str) -> Column:
        """Returns the values of a column in these rows."""
        column = self.columns[name]
        return column if self.places.rows is None else column.take(self.places.rows)

    def join(self, datasets: Sequence[TablePart]) -> TablePart:
        """Returns the rows of several parts, whose tables must have the same columns."""
        return TablePart(
            **joined_fields(datasets),
            columns={
                name: _join_columns([dataset.columns[name] for dataset in datasets])
                for name in self.columns
            },
            files=tuple(path for dataset in datasets for path in dataset.files),
        )


def _join_columns(columns: Sequence[Column]) -> Column:
    first = columns[0]
    if first.kind != CATEGORY:
        values = np.concatenate([column.values for column in columns])
        return Column(first.name, first.kind, values)
    texts = [*first.vocabulary]
    if any(column.vocabulary != first.vocabulary for column in columns):
        texts = sort_texts([*{text: None for column in columns for text in column.vocabulary}])
    codes = {text: code for code, text in enumerate(texts)}
    tables = [
        # The last entry is for missing values, whose code is -1.
        np.array([*(codes[text] for text in column.vocabulary), MISSING], np.int32)
        for column in columns
    ]
    codes_of_rows = [table[column.values] for table, column in zip(tables, columns, strict=True)]
    return Column(first.name, CATEGORY, np.concatenate(codes_of_rows), tuple(texts))


def rows_text(part: TablePart, rows: np.ndarray) -> str:
    """Returns where the first of some rows is, as in `a.csv, row 7 and 2 other rows`."""
    others = f" and {format_count(len(rows) - 1, 'other row')}" if rows[1:].size else ""
    return f"{part.location(int(rows[0]))}{others}"


def class_numbers(part: TablePart, name: str, classes: Sequence[str]) -> np.ndarray:
    """Returns the class of each row, int32 [n].

    Raises `DataError` if a row has a class that is not among `classes`, those of the training rows.
    """
    column = part.column(name)
    numbers = column.numbers(classes)
    unknown = np.flatnonzero(numbers < 0)
    if len(unknown):
        text = column.text(int(unknown[0]))
        raise DataError(
            f"column {name!r} has the class {text!r} in {rows_text(part, unknown)}, which no "
            f"training row has{nearest_name_hint(text, classes)}\n"
            f"its classes: {shorten(', '.join(classes), 200)}",
            field="source",
            code="unknown-class",
        )
    return numbers


def check_names(
    source: str, requested: Iterator[str] | Sequence[str], known: Sequence[str]
) -> None:
    """Raises `DataError` for a column that the table does not have."""
    for name in requested:
        if name not in known:
            message = unknown_name_message("column", name, known)
            raise DataError(f"{source}: {message}", field="columns", code="unknown-column")


def sort_texts(texts: Sequence[str]) -> list[str]:
    """Returns texts in alphabetical order; by value if all are integers, so that 10 follows 9."""
    if all(_is_integer(text) for text in texts):
        return sorted(texts, key=int)
    return sorted(texts)


def _is_integer(text: str) -> bool:
    digits = text.removeprefix("-")
    # `007` and `7` are different texts.
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS
    return is_number and str(int(text)) == text
