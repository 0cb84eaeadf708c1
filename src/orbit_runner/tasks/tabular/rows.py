"""Reads the rows to predict for as training reads them: CSV, JSON lines, Parquet and `.npz`.

A file may be compressed with gzip. Unlike in training, a row that cannot be read is returned with
its problem, and lines of standard input are read as they arrive, so CSV is read by another parser;
a test compares both on random texts.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
import os
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from orbit_runner.data.tables.arrow import is_date_or_time, is_text
from orbit_runner.data.tables.build import decode, to_texts
from orbit_runner.data.tables.cell_texts import (
    is_missing,
    normal_text,
    parse_date,
    parse_number,
    text_of,
)
from orbit_runner.data.tables.columns import CATEGORY, NUMBER
from orbit_runner.data.tables.dataset import TableOptions
from orbit_runner.data.tables.jsonl import parse_line
from orbit_runner.data.text.lines import is_utf8, open_binary, remove_mark
from orbit_runner.errors import DataError, RunnerError, shorten
from orbit_runner.registry import TABLE_SOURCES
from orbit_runner.tasks.serving import (
    STANDARD_INPUT,
    Line,
    Prediction,
    argument_line,
    is_file,
    sentence_line,
)
from orbit_runner.tasks.tabular.data_config import TableDataConfig

if TYPE_CHECKING:
    import pyarrow

    from orbit_runner.data.tables.dataset import TableReader

CSV, JSON_LINES, LINES = "csv", "jsonl", "lines"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_MOST_CELL_CHARACTERS = 2**31 - 1
_AFTER_CARRIAGE_RETURN = re.compile(r"(?<=\r)(?!\n|\Z)")


@dataclasses.dataclass(frozen=True)
class Row:
    """A row to predict for: its place, and its values by column; or what is wrong with it.

    A value is None if it is missing. `cells` are all columns as texts, as they are in the file.
    """

    where: str
    values: Mapping[str, object]
    problem: str = ""
    cells: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def error_prediction(self, reason: str) -> Prediction:
        """Returns a prediction that reports an error for the row."""
        start = f"{self.where}: " if self.where else ""
        place = {"row": self.where} if self.where else {}
        return Prediction(f"{start}error: {reason}", place | {"error": reason}, self.cells)

    def text(self, column: str, expected: str = "a text") -> str:
        """Returns a value as training does, without spaces at both ends; "" if it is missing.

        Raises ValueError with what is wrong if there is no such column, or if the value is a list,
        an object or no Unicode. `expected` is what the column has, for this message.
        """
        if column not in self.values:
            raise ValueError(f"has no column {column!r}")
        value = self.values[column]
        try:
            text = (text_of(value) or "").strip()
        except ValueError:
            raise _cell_error(column, value, expected) from None
        if not is_utf8(text):
            raise ValueError(f"column {column!r}: is not valid UTF-8")
        return text

    def category(self, column: str) -> str:
        """Returns the text by which categories are compared, as `text` does."""
        return normal_text(self.text(column))

    def number(self, column: str) -> float:
        """Returns a number, NaN if it is missing. Raises ValueError with what is wrong."""
        text = self.text(column, "a number")
        try:
            number = parse_number(text) if text else np.nan
        except ValueError:
            raise _cell_error(column, text, "a number") from None
        with np.errstate(over="ignore"):
            if np.isinf(np.float32(number)):
                raise ValueError(f"column {column!r}: got {number:g}, expected a number of 32 bits")
        return number

    def date(self, column: str) -> float:
        """Returns the seconds since 1970, NaN if it is missing. Raises ValueError likewise."""
        expected = "a date such as 2024-01-31 or 2024-01-31T10:30"
        text = self.text(column, expected)
        try:
            return float(parse_date(text)) if text else np.nan
        except ValueError:
            raise _cell_error(column, text, expected) from None


def _cell_error(column: str, value: object, expected: str) -> ValueError:
    return ValueError(f"column {column!r}: got {shorten(repr(value), 80)}, expected {expected}")


def item_rows(
    arguments: Sequence[str],
    lines: Iterable[str],
    data: TableDataConfig,
    numbers: Collection[str],
    text_column: str,
) -> Iterator[Row]:
    """Yields the rows to predict for, in order.

    Arguments are files, `-` for standard input, or rows as JSON objects; for the formats of files,
    see `file_rows` and `text_rows`. If the model sees only the texts of `text_column`, other
    arguments are texts. Raises `RunnerError` if an argument is neither, or looks like the name of a
    file that does not exist.
    """
    for argument in arguments or ["-"]:
        if argument == "-":
            yield from text_rows(STANDARD_INPUT, lines, data, text_column=text_column)
        elif is_file(os.path.expanduser(argument)):
            yield from file_rows(argument, data, numbers, text_column=text_column)
        elif argument.lstrip().startswith("{"):
            yield from json_rows("", [argument], data.missing_texts)
        elif text_column:
            yield text_row("", text_column, sentence_line(argument))
        else:
            raise RunnerError(
                f"got {shorten(ascii(argument))}, expected a CSV file, a file of JSON lines, "
                "Parquet or .npz, a row as a JSON object, or - for standard input",
                code="bad-item",
            )


def file_rows(
    path: str, data: TableDataConfig, numbers: Collection[str] = (), *, text_column: str = ""
) -> Iterator[Row]:
    """Yields the rows of a file, plain or gzip.

    Args:
        path: The file. Its first bytes decide on its format: Parquet, `.npz`, JSON lines if it
            begins with `{` or its name ends in `.jsonl`, otherwise CSV.
        data: How training reads its table: delimiter, names of columns, missing values.
        numbers: The columns of numbers.
        text_column: The column of texts, if the model sees nothing else; see `text_rows`.

    Raises:
        RunnerError: The file cannot be read.
    """
    try:
        with open_binary(Path(path).expanduser()) as file:
            head = file.peek(16)  # type: ignore[attr-defined]
            if head.startswith(_UTF16_MARKS):
                raise RunnerError(f"{path}: is UTF-16, expected UTF-8", code="damaged-file")
            reader = _binary_format(head)
            if reader is None:
                lines = io.TextIOWrapper(file, "utf-8", errors="surrogateescape", newline="\n")
                yield from text_rows(path, lines, data, _format_of(path, text_column), text_column)
                return
    except (OSError, EOFError, zlib.error) as error:
        raise RunnerError(
            f"{path}: cannot be read to the end ({error})", code="unreadable-file"
        ) from None
    yield from _table_rows(path, reader, data, numbers)


def _binary_format(head: bytes) -> TableReader | None:
    """Returns the reader of files with these first bytes; None if they are texts."""
    readers = (entry.load() for entry in TABLE_SOURCES.registered())
    return next((r for r in readers if r.file_start and head.startswith(r.file_start)), None)


def _format_of(path: str, text_column: str) -> str:
    """Returns the format that the name of a file says; "" if it does not say one."""
    suffix = path.lower().removesuffix(".gz").rpartition(".")[2]
    if suffix in (CSV, JSON_LINES):
        return suffix
    return LINES if suffix == "txt" and text_column else ""


def text_rows(
    where: str, lines: Iterable[str], data: TableDataConfig, kind: str = "", text_column: str = ""
) -> Iterator[Row]:
    """Yields the rows of CSV, of JSON lines, or of lines that are texts.

    If `kind` is empty, lines are JSON if the first begins with `{`. Otherwise, they are texts if
    the model sees only the texts of `text_column`, and the first line does not name this column.
    """
    rest = remove_mark(lines)
    first = next(rest, "")
    lines = itertools.chain([first], rest) if first else rest
    kind = kind or _format_of_line(first, data, text_column)
    if kind == JSON_LINES:
        yield from json_rows(where, lines, data.missing_texts)
    elif kind == LINES:
        for number, text in enumerate(lines, 1):
            line = argument_line(text.removesuffix("\n").removesuffix("\r"))
            yield text_row(f"{where}, row {number}", text_column, line)
    else:
        # CSV has no types, so the default counts, even if the training data have types.
        missing = (*data.missing_values, *data.missing_texts)
        yield from csv_rows(where, lines, data.delimiter, missing, tuple(data.column_names))


def _format_of_line(first: str, data: TableDataConfig, text_column: str) -> str:
    """Returns the format of lines that begin with this one."""
    if first.lstrip().startswith("{"):
        return JSON_LINES
    header = data.column_names or next(_cells([first], data.delimiter), ([],))[0]
    return LINES if text_column and text_column not in header else CSV


def text_row(where: str, column: str, line: Line) -> Row:
    """Returns the row of a text; `where` is its place, "" if it has none."""
    values = {column: line.text}
    return Row(where, values, line.problem, values)


def csv_rows(
    where: str,
    lines: Iterable[str],
    delimiter: str,
    missing: Sequence[str],
    header: Sequence[str] = (),
) -> Iterator[Row]:
    """Yields the rows of a CSV file, whose first line names the columns unless `header` does.

    `missing` are the texts that mean that a value is missing.
    """
    number = 0
    absent = {"", *(text.strip() for text in missing)}
    for cells, problem in _cells(lines, delimiter):
        if not header and not problem:
            header = cells
            twice = next((name for name in cells if cells.count(name) > 1), None)
            if twice is not None:
                raise RunnerError(f"{where}: has two columns {twice!r}", code="set-twice")
            continue
        number += 1
        if not problem and len(cells) != len(header):
            problem = f"has {len(cells)} columns, expected {len(header)}"
        values = {
            name: None if is_missing(cell.strip(), absent) else cell
            for name, cell in zip(header, cells, strict=False)
        }
        texts = dict.fromkeys(header, "") | dict(zip(header, cells, strict=False))
        yield Row(f"{where}, row {number}", values, problem, texts)


def _cells(lines: Iterable[str], delimiter: str) -> Iterator[tuple[list[str], str]]:
    """Yields the cells of each row, and what is wrong with it, or ""."""
    csv.field_size_limit(max(csv.field_size_limit(), _MOST_CELL_CHARACTERS))
    is_at_end = False

    def pieces() -> Iterator[str]:
        nonlocal is_at_end
        for line in lines:
            yield from _AFTER_CARRIAGE_RETURN.split(line)
        is_at_end = True

    rows = csv.reader(pieces(), delimiter=delimiter)
    while True:
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield [], f"cannot be read as CSV: {error}"
            continue
        # The reader asks for another line only within quotes.
        problem = "has a quotation mark without an end" if is_at_end else ""
        # Blank lines are no rows, as in the files for training.
        if cells:
            yield cells, problem


def json_rows(where: str, lines: Iterable[str], missing: Collection[str] = ()) -> Iterator[Row]:
    """Yields the rows of JSON lines, whose place is `where`, "" if they have none.

    `missing` are the texts that mean a missing value.
    """
    absent = {text.strip() for text in missing}
    for number, line in enumerate(lines, 1):
        place = where and f"{where}, row {number}"
        try:
            values = parse_line(line, place)
        except DataError as error:
            yield Row(place, {}, str(error).removeprefix(f"{place}: "))
            continue
        texts = {name: _json_text(value) for name, value in values.items()}
        if absent:
            values = {
                n: None if _is_missing(value, absent) else value for n, value in values.items()
            }
        yield Row(place, values, cells=texts)


def _json_text(value: object) -> str:
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    return text_of(value) or ""


def _is_missing(value: object, missing: Collection[str]) -> bool:
    if value is None or isinstance(value, (list, dict)):
        return value is None
    return is_missing((text_of(value) or "").strip(), missing)


def _table_rows(
    path: str, reader: TableReader, data: TableDataConfig, numbers: Collection[str]
) -> Iterator[Row]:
    """Yields the rows of a file that only a reader for training reads."""
    missing = {text.strip() for text in data.missing_texts}
    dataset = reader.load(data_dir="", input_path=(path,), options=TableOptions())
    names = [
        name
        for name, kind in dataset.kinds.items()
        if kind in (NUMBER, CATEGORY) or is_date_or_time(kind)
    ]
    for block in dataset.blocks(names):
        columns = [_values(block.columns[name], name in numbers) for name in names]
        texts = [_values(block.columns[name], is_number=False) for name in names]
        cells = zip(*texts, strict=True)
        for number, values in enumerate(zip(*columns, strict=True), block.first):
            known = {
                name: None if _is_missing(value, missing) else value
                for name, value in zip(names, values, strict=True)
            }
            cell_texts = {n: text or "" for n, text in zip(names, next(cells), strict=True)}
            yield Row(f"{path}, row {number}", known, cells=cell_texts)


def _values(
    array: pyarrow.Array | pyarrow.ChunkedArray, is_number: bool
) -> list[str | float | None]:
    import pyarrow

    if is_number and not is_text(decode(array).type):
        return decode(array).cast(pyarrow.float64(), safe=False).to_pylist()
    return to_texts(array).to_pylist()
