"""Files of JSON objects, one per line."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from orbit_runner.data.tables.arrow_types import read_error_scope
from orbit_runner.data.tables.bad_rows import HINT
from orbit_runner.data.tables.columns import CATEGORY, NUMBER
from orbit_runner.data.tables.reader import Block, TableOptions, TableReader, table_files
from orbit_runner.errors import DataError, shorten

_BLOCK_ROWS = 2**14
_FIRST_ROWS = 1000


class _Row(NamedTuple):
    """A line: its number, its object, and why it cannot be read."""

    number: int
    values: dict[str, Any]
    problem: str = ""


def load(*, data_dir: str, input_path: Sequence[str], options: TableOptions) -> TableReader:
    """Returns the reader of files of JSON objects, one per line; also of `.jsonl.gz` files.

    The columns are the keys of the first 1,000 rows. A key that a row lacks, or whose value is
    null, is a missing value. Raises `DataError` if a file is missing or damaged.
    """
    files = table_files("jsonl", data_dir, input_path, "*.jsonl")
    skips = options.max_bad_records > 0
    with read_error_scope(files[0], "JSON lines"):
        kinds = _infer_kinds(itertools.islice(_read_rows(files[0], skips), _FIRST_ROWS))

    def blocks(names: Sequence[str]) -> Iterator[Block]:
        for path in files:
            with read_error_scope(path, "JSON lines"):
                yield from _read_blocks(path, names, skips)

    return TableReader("jsonl", kinds, blocks, tuple(files), options)


def parse_object(text: str, where: str) -> dict[str, Any]:
    """Returns the JSON object in a text. Raises `DataError` if there is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
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


def _infer_kinds(rows: Iterable[_Row]) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for row in rows:
        for name, value in row.values.items():
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value is not None and not is_number:
                kinds[name] = CATEGORY
            else:
                kinds.setdefault(name, NUMBER)
    return kinds


def _read_rows(path: Path, skips: bool) -> Iterator[_Row]:
    """Yields the rows of a file. If `skips` is false, a bad row raises `DataError`."""
    open_text = gzip.open if path.suffix == ".gz" else open
    # With `strict`, the error would not name the row.
    with open_text(path, "rt", encoding="utf-8", errors="surrogateescape") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield _Row(number, _parse_line(line, f"{path}, row {number}"))
            except DataError as error:
                if not skips:
                    raise DataError(f"{error}\n{HINT}", field=error.field) from None
                yield _Row(number, {}, str(error))


def _parse_line(line: str, where: str) -> dict[str, Any]:
    found = parse_object(line, where)
    try:
        line.encode()
    except UnicodeEncodeError:
        raise DataError(f"{where}: is not valid UTF-8", field="input_path") from None
    return found


def _read_blocks(path: Path, names: Sequence[str], skips: bool) -> Iterator[Block]:
    import pyarrow

    rows, first = _read_rows(path, skips), 1
    while chunk := list(itertools.islice(rows, _BLOCK_ROWS)):
        bad = {place: row.problem for place, row in enumerate(chunk) if row.problem}
        columns = {
            name: pyarrow.array(
                _column_texts(path, name, chunk, bad if skips else None), pyarrow.string()
            )
            for name in names
        }
        yield Block(columns, str(path), first, bad)
        first += len(chunk)


def _column_texts(
    path: Path, name: str, rows: Sequence[_Row], bad: dict[int, str] | None
) -> list[str | None]:
    """Returns the texts of a column. Adds rows to `bad` if it is not None."""
    found: list[str | None] = []
    for place, row in enumerate(rows):
        try:
            text = text_of(row.values.get(name))
            if text is not None:
                text.encode()  # JSON may escape half of a surrogate pair.
        except ValueError:
            got = shorten(json.dumps(row.values[name]), 80)
            problem = (
                f"{path}, row {row.number}: column {name!r}: got {got}, expected a single value"
            )
            if bad is None:
                raise DataError(f"{problem}\n{HINT}", field="input_path") from None
            bad.setdefault(place, problem)
            text = None
        found.append(text)
    return found
