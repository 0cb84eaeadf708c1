"""The columns of a table in memory. Does not import TensorFlow, to report errors early."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from orbit_runner.data.dataset import Dataset, joined_fields
from orbit_runner.data.places import Places
from orbit_runner.errors import DataError, unknown_name_message

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
class TableSource:
    """The columns of a table that are used.

    Attributes:
        name: Name of the data source, for messages.
        columns: The columns by name.
        parts: The name and the number of rows of each file, in order; for arrays, of the arrays.
        files: The files that the columns were read from, if any.
        deciding: The columns that decide on the part of a row, and have another kind in `columns`.
    """

    name: str
    columns: Mapping[str, Column]
    parts: Sequence[tuple[str, int]]
    files: tuple[Path, ...] = ()
    deciding: Mapping[str, Column] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def places(self) -> Places:
        """The rows of the files."""
        return Places(tuple(self.parts))

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.places.size


@dataclasses.dataclass(frozen=True, eq=False)
class TablePart(Dataset):
    """The rows of a table that a section of the config reads."""

    source: TableSource
    name: str
    places: Places
    # The source of a mixture that each row comes from, integers [k]; None if there is only one.
    origins: np.ndarray | None = None

    @classmethod
    def of_source(cls, source: TableSource, rows: np.ndarray | None = None) -> TablePart:
        """Returns some rows of a table, ascending, int64 [k]; None for all."""
        return cls(source, source.name, dataclasses.replace(source.places, rows=rows))

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.places.size

    def select(self, rows: np.ndarray) -> TablePart:
        """Returns some of these rows."""
        return dataclasses.replace(self, places=self.places.select(rows))

    def column(self, name: str) -> Column:
        """Returns the values of a column in these rows."""
        column = self.source.columns[name]
        return column if self.places.rows is None else column.take(self.places.rows)

    def join(self, datasets: Sequence[TablePart]) -> TablePart:
        """Returns the rows of several parts, whose tables must have the same columns."""
        sources = [dataset.source for dataset in datasets]
        joined = joined_fields(datasets)
        source = TableSource(
            name=joined["name"],
            columns={
                name: _join_columns([table.columns[name] for table in sources])
                for name in self.source.columns
            },
            parts=joined["places"].parts,
            files=tuple(path for table in sources for path in table.files),
        )
        return TablePart(source, **joined)


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


def check_names(source: str, wanted: Iterator[str] | Sequence[str], known: Sequence[str]) -> None:
    """Raises `DataError` for a column that the table does not have."""
    for name in wanted:
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
