"""Files of JSON objects, one per line."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.data.disk_cache import cached, file_status
from orbit_runner.data.tables.arrow import read_error_scope
from orbit_runner.data.tables.cell_texts import are_dates, text_of
from orbit_runner.data.tables.columns import CATEGORY, DATE, NUMBER
from orbit_runner.data.tables.dataset import (
    Block,
    TableOptions,
    TableReader,
    load_files,
)
from orbit_runner.data.text.lines import is_utf8, open_binary
from orbit_runner.errors import DataError, shorten
from orbit_runner.utils.log import Progress

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

_BLOCK_ROWS = 2**14
# A column is one of dates if its texts in these rows are.
_FIRST_ROWS = 1000
_LIST, _OBJECT = "list", "object"


def _read_kinds(files: Sequence[Path], options: TableOptions) -> dict[str, str]:
    """Returns the kinds of all columns, from the cache if the files have not changed.

    The columns are the keys of all rows. A key that a row lacks, or whose value is null, is a
    missing value.
    """
    missing = options.missing_values
    kinds = cached(
        "tables",
        ["kinds", *missing],
        lambda: _infer_kinds(files, frozenset(text.strip() for text in missing)),
        [file_status(path) for path in files],
    )
    if not kinds:
        raise DataError(f"{files[0]}: has no rows", field="input_path", code="empty-data")
    return kinds


def _infer_kinds(files: Sequence[Path], missing: frozenset[str]) -> dict[str, str]:
    """Returns the kinds of all columns."""

    def type_of(value: object) -> type:
        is_missing = type(value) is str and value.strip() in missing
        return type(None) if is_missing else type(value)

    # Sets have no order, and the order of the columns is that of their first rows.
    names: dict[str, None] = {}
    first_texts: dict[str, list[str]] = {}
    pairs: set[tuple[str, type]] = set()
    get_type = type_of if missing else type
    progress = Progress("reading the columns of jsonl")
    count = 0
    for path in files:
        with read_error_scope(path, "JSON lines"):
            for values in read_rows(path):
                if not names.keys() >= values.keys():
                    names.update(dict.fromkeys(values))
                if count < _FIRST_ROWS:
                    for name, value in values.items():
                        if get_type(value) is str and value.strip():
                            first_texts.setdefault(name, []).append(value.strip())
                pairs.update(zip(values, map(get_type, values.values()), strict=True))
                count += 1
                if count % _BLOCK_ROWS == 0:
                    progress(f"{count:,} rows")
    types: dict[str, set[type]] = {name: set() for name in names}
    for name, kind in pairs:
        types[name].add(kind)
    kinds = {name: _kind_of_types(types[name] - {type(None)}) for name in names}
    for name, texts in first_texts.items():
        if types[name] <= {str, type(None)} and are_dates(texts):
            kinds[name] = DATE
    return kinds


def _kind_of_types(types: set[type]) -> str:
    if types and types <= {list, dict}:
        return _LIST if list in types else _OBJECT
    return NUMBER if types <= {int, float, list, dict} else CATEGORY


def read_rows(path: Path) -> Iterator[JsonObject]:
    """Yields the rows of a file, plain or gzip."""
    with open_binary(path) as file:
        # Only a line feed ends a line. Bytes that are not UTF-8 become surrogates, so that an error
        # can name the row.
        lines = io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="\n")
        for number, line in enumerate(lines, 1):
            yield parse_line(line, f"{path}, row {number}")


def parse_line(line: str, where: str) -> JsonObject:
    """Returns the JSON object in a line. Raises `DataError` if there is none, or no UTF-8."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise DataError(
            f"{where}: got {shorten(line.strip(), 80)!r}, expected a JSON object",
            field="input_path",
            code="bad-record",
        )
    if not (line.isascii() or is_utf8(line)):
        raise DataError(f"{where}: is not valid UTF-8", field="input_path", code="bad-record")
    return value


def _read_blocks(path: Path, names: Sequence[str], options: TableOptions) -> Iterator[Block]:
    """Yields the rows of a file as texts."""
    import pyarrow

    rows = read_rows(path)
    first = 1
    with read_error_scope(path, "JSON lines"):
        while chunk := list(itertools.islice(rows, _BLOCK_ROWS)):
            columns = {
                name: pyarrow.array(_column_texts(path, name, chunk, first), pyarrow.string())
                for name in names
            }
            yield Block(columns, str(path), first)
            first += len(chunk)


def _column_texts(
    path: Path, name: str, rows: Sequence[JsonObject], first: int
) -> list[str | None]:
    """Returns the texts of a column; `first` is the number of the first row."""
    texts: list[str | None] = []
    for number, row in enumerate(rows, first):
        value = row.get(name)
        try:
            text = value if type(value) is str else text_of(value)
            if text is not None and not text.isascii():
                text.encode()  # JSON may escape half of a surrogate pair.
        except ValueError:
            got = shorten(json.dumps(row[name]), 80)
            raise DataError(
                f"{path}, row {number}: column {name!r}: got {got}, expected a single value",
                field="input_path",
                code="bad-record",
            ) from None
        texts.append(text)
    return texts


JSONL = TableReader(load_files("jsonl", "*.jsonl", _read_kinds, _read_blocks))
