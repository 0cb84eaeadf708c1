"""Reads the rows to predict for with the readers of training: CSV, JSON lines, Parquet and `.npz`.

Cells are read as texts, so that one that does not fit its column is an error of its row.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from orbit_runner.data.tables.arrow import is_date_or_time, is_text, read_error_scope
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
from orbit_runner.data.tables.jsonl import parse_line, read_rows
from orbit_runner.data.text.lines import is_utf8, open_binary, read_stream
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
    see `file_rows`. If the model sees only the texts of `text_column`, other arguments are texts.
    Raises `RunnerError` if an argument is neither, or looks like the name of a file that does not
    exist.
    """
    for argument in arguments or ["-"]:
        path = os.path.expanduser(argument)
        if argument == "-":
            yield from stream_rows(STANDARD_INPUT, lines, data, numbers, text_column)
        elif os.path.isfile(path):
            yield from file_rows(path, data, numbers, text_column)
        elif is_file(path):
            with open(path, "rb") as pipe:
                piped = read_stream(pipe, argument)
                yield from stream_rows(argument, piped, data, numbers, text_column)
        elif argument.lstrip().startswith("{"):
            yield _argument_row(argument, data)
        elif text_column:
            yield text_row("", text_column, sentence_line(argument))
        else:
            raise RunnerError(
                f"got {shorten(ascii(argument))}, expected a CSV file, a file of JSON lines, "
                "Parquet or .npz, a row as a JSON object, or - for standard input",
                code="bad-item",
            )


def stream_rows(
    where: str,
    lines: Iterable[str],
    data: TableDataConfig,
    numbers: Collection[str] = (),
    text_column: str = "",
) -> Iterator[Row]:
    """Yields the rows of a stream: texts as they arrive, those of a table after its end."""
    rest = iter(lines)
    first = next(rest, "")
    if not first:
        return
    lines = itertools.chain([first], rest)
    if _format_of_line(first, data, text_column) == LINES:
        yield from _text_rows(where, lines, text_column)
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, Path(where).name)
        with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.writelines(lines)
        try:
            yield from file_rows(str(path), data, numbers, text_column, where)
        except DataError as error:
            raise DataError(str(error).replace(str(path), where), code=error.code) from None


def file_rows(
    path: str,
    data: TableDataConfig,
    numbers: Collection[str] = (),
    text_column: str = "",
    where: str = "",
) -> Iterator[Row]:
    """Yields the rows of a file, plain or gzip.

    Args:
        path: The file. Its first bytes decide on its format: Parquet, `.npz`, JSON lines if it
            begins with `{` or its name ends in `.jsonl`, otherwise CSV. It is one of texts if the
            model sees only the texts of `text_column`, and the first line does not name this
            column, or if its name ends in `.txt`.
        data: How training reads its table: delimiter, names of columns, missing values.
        numbers: The columns of numbers.
        text_column: The column of texts, if the model sees nothing else.
        where: The place of the rows; by default `path`.

    Raises:
        DataError: The file cannot be read.
    """
    where = where or path
    with read_error_scope(Path(path), "a table"), open_binary(Path(path)) as file:
        # Plain and gzip files have `peek`, which the type of `open_binary` does not name.
        reader = _binary_reader(file.peek(16))  # type: ignore[attr-defined]
        first = "" if reader else file.readline().decode("utf-8-sig", "replace")
    if reader:
        yield from _table_rows(where, path, reader, data, numbers)
        return
    kind = _format_of_name(path, text_column) or _format_of_line(first, data, text_column)
    if kind == LINES:
        with open(path, "rb") as binary:
            yield from _text_rows(where, read_stream(binary, path), text_column)
    elif kind == JSON_LINES:
        yield from _json_rows(where, path, data)
    else:
        yield from _table_rows(where, path, TABLE_SOURCES.get(CSV).load(), data, numbers)


def _binary_reader(head: bytes) -> TableReader | None:
    """Returns the reader of files with these first bytes; None if they are texts."""
    readers = (entry.load() for entry in TABLE_SOURCES.registered())
    return next((r for r in readers if r.file_start and head.startswith(r.file_start)), None)


def _format_of_name(path: str, text_column: str) -> str:
    """Returns the format that the name of a file says; "" if it does not say one."""
    suffix = path.lower().removesuffix(".gz").rpartition(".")[2]
    if suffix in (CSV, JSON_LINES):
        return suffix
    return LINES if suffix == "txt" and text_column else ""


def _format_of_line(first: str, data: TableDataConfig, text_column: str) -> str:
    """Returns the format of lines that begin with this one."""
    if first.lstrip().startswith("{"):
        return JSON_LINES
    cells = [cell.strip('"') for cell in first.rstrip("\r\n").split(data.delimiter)]
    return LINES if text_column and text_column not in (data.column_names or cells) else CSV


def text_row(where: str, column: str, line: Line) -> Row:
    """Returns the row of a text; `where` is its place, "" if it has none."""
    values = {column: line.text}
    return Row(where, values, line.problem, values)


def _text_rows(where: str, lines: Iterable[str], column: str) -> Iterator[Row]:
    for number, text in enumerate(lines, 1):
        line = argument_line(text.removesuffix("\n").removesuffix("\r"))
        yield text_row(f"{where}, row {number}", column, line)


def _argument_row(argument: str, data: TableDataConfig) -> Row:
    try:
        return _json_row("", parse_line(argument, ""), _missing_texts(data))
    except DataError as error:
        return Row("", {}, str(error).removeprefix(": "))


def _json_rows(where: str, path: str, data: TableDataConfig) -> Iterator[Row]:
    """Yields the rows of JSON lines, of which a list or an object is an error of its row only."""
    dataset = (
        TABLE_SOURCES.get(JSON_LINES)
        .load()
        .load(data_dir="", input_path=(path,), options=TableOptions())
    )
    missing = _missing_texts(data)
    for number, values in enumerate(read_rows(Path(path)), 1):
        # A key that a row lacks is a missing value.
        yield _json_row(f"{where}, row {number}", dict.fromkeys(dataset.kinds) | values, missing)


def _json_row(where: str, values: Mapping[str, object], missing: Collection[str]) -> Row:
    texts = {name: _json_text(value) for name, value in values.items()}
    return Row(where, _without_missing(values, missing), cells=texts)


def _json_text(value: object) -> str:
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    return text_of(value) or ""


def _missing_texts(data: TableDataConfig) -> frozenset[str]:
    return frozenset(text.strip() for text in data.missing_texts)


def _without_missing(values: Mapping[str, object], missing: Collection[str]) -> dict[str, object]:
    """Returns the values of a row, None for those that `missing` contains."""
    return {n: None if _is_missing(value, missing) else value for n, value in values.items()}


def _is_missing(value: object, missing: Collection[str]) -> bool:
    if value is None or isinstance(value, (list, dict)):
        return value is None
    return is_missing((text_of(value) or "").strip(), missing)


def _table_rows(
    where: str, path: str, reader: TableReader, data: TableDataConfig, numbers: Collection[str]
) -> Iterator[Row]:
    """Yields the rows of a file as its reader for training reads them."""
    options = TableOptions(delimiter=data.delimiter, column_names=tuple(data.column_names))
    missing = _missing_texts(data)
    if not reader.is_typed:
        # The default counts, even if the training data have types.
        missing |= {"", *(text.strip() for text in data.missing_values)}
    dataset = reader.load(data_dir="", input_path=(path,), options=options)
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
            known = _without_missing(dict(zip(names, values, strict=True)), missing)
            cell_texts = {n: text or "" for n, text in zip(names, next(cells), strict=True)}
            yield Row(f"{where}, row {number}", known, cells=cell_texts)


def _values(
    array: pyarrow.Array | pyarrow.ChunkedArray, is_number: bool
) -> list[str | float | None]:
    import pyarrow

    array = decode(array)
    if is_text(array.type):
        return array.to_pylist()
    if is_number:
        return array.cast(pyarrow.float64(), safe=False).to_pylist()
    return to_texts(array).to_pylist()
