"""Files of JSON objects, one per line."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.data.tables.arrow_types import read_error_scope
from orbit_runner.data.tables.columns import CATEGORY, NUMBER
from orbit_runner.data.tables.reader import Block, TableOptions, TableReader, table_files
from orbit_runner.errors import DataError, shorten

_BLOCK_ROWS = 2**14
_FIRST_ROWS = 1000


def load(*, data_dir: str, input_path: Sequence[str], options: TableOptions) -> TableReader:
    """Returns the reader of files of JSON objects, one per line; also of `.jsonl.gz` files.

    The columns are the keys of the first 1,000 rows. A key that a row lacks, or whose value is
    null, is a missing value. Raises `DataError` if a file is missing or damaged.
    """
    files = table_files("jsonl", data_dir, input_path, "*.jsonl")
    with read_error_scope(files[0], "JSON lines"):
        kinds = _kinds(itertools.islice(_rows(files[0]), _FIRST_ROWS))

    def blocks(names: Sequence[str]) -> Iterator[Block]:
        for path in files:
            with read_error_scope(path, "JSON lines"):
                yield from _blocks(path, names)

    return TableReader("jsonl", kinds, blocks, tuple(files))


def parse_object(text: str, where: str) -> dict[str, Any]:
    """Returns the JSON object in a text. Raises `DataError` if there is none."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise DataError(
            f"{where}: got {shorten(text.strip(), 80)!r}, expected a JSON object",
            field="input_path",
        )
    return found


def text_of(value: Any) -> str | None:
    """Returns a JSON value as text, None for null. Raises ValueError for lists and objects."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (list, dict)):
        raise ValueError("is not a single value")
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # 3.0 and 3 are the same category.
    return json.dumps(value)


def _kinds(rows: Iterable[tuple[int, dict[str, Any]]]) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for _, row in rows:
        for name, value in row.items():
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value is not None and not is_number:
                kinds[name] = CATEGORY
            else:
                kinds.setdefault(name, NUMBER)
    return kinds


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the number of each line and its object."""
    open_text = gzip.open if path.suffix == ".gz" else open
    with open_text(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            yield number, parse_object(line, f"{path}, row {number}")


def _blocks(path: Path, names: Sequence[str]) -> Iterator[Block]:
    import pyarrow

    rows, first = _rows(path), 1
    while chunk := list(itertools.islice(rows, _BLOCK_ROWS)):
        columns = {
            name: pyarrow.array(_texts(path, name, chunk), pyarrow.string()) for name in names
        }
        yield Block(columns, str(path), first)
        first += len(chunk)


def _texts(path: Path, name: str, rows: Sequence[tuple[int, dict[str, Any]]]) -> list[str | None]:
    found = []
    for number, row in rows:
        try:
            found.append(text_of(row.get(name)))
        except ValueError:
            got = shorten(json.dumps(row[name]), 80)
            raise DataError(
                f"{path}, row {number}: column {name!r}: got {got}, expected a single value",
                field="input_path",
            ) from None
    return found
