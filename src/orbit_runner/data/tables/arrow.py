"""Kinds of columns by Arrow types, blocks of Arrow batches, errors of pyarrow; Parquet files."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from orbit_runner.data.tables.columns import CATEGORY, DATE, NUMBER
from orbit_runner.data.tables.dataset import (
    Block,
    TableOptions,
    TableReader,
    check_different_names,
    common_kinds,
    load_files,
)
from orbit_runner.errors import DataError, first_line

if TYPE_CHECKING:
    import pyarrow

BLOCK_ROWS = 2**16
_NULL = "null"  # A column without any value, which fits any kind.


def kinds_of_schemas(schemas: Mapping[Path, pyarrow.Schema]) -> dict[str, str]:
    """Returns the kind of each column in all files, of their names and types in each file.

    Raises `DataError` if a file lacks a column of the first, or has it with another kind.
    """
    from pyarrow.types import is_null

    kinds_by_file = {}
    for path, schema in schemas.items():
        check_different_names(path, schema.names)
        kinds_by_file[path] = {
            field.name: _NULL if is_null(field.type) else kind_of(field.type) for field in schema
        }
    return common_kinds(kinds_by_file, _common_kind)


def _common_kind(name: str, kinds_by_file: Mapping[Path, str]) -> str:
    """Returns the kind of a column in all files. Raises `DataError` if it differs."""
    files = {kind: path for path, kind in kinds_by_file.items()}
    files.pop(_NULL, None)
    if len(files) > 1:
        (first, path), (second, other) = [*files.items()][:2]
        raise DataError(
            f"{path}: column {name!r} is a {first}, and in {other.name} a {second}\n"
            "write it with the same type in all files",
            field="input_path",
            code="data-mismatch",
        )
    return next(iter(files), CATEGORY)


def kind_of(kind: pyarrow.DataType, *, from_text: bool = False) -> str:
    """Returns `number`, `category`, `date`, or the name of a type that cannot be used.

    With `from_text`, the type was inferred from texts, which can always be used as a category.
    """
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return NUMBER
    if types.is_date(kind) or types.is_timestamp(kind):
        return DATE
    if from_text or is_text(kind) or types.is_boolean(kind) or types.is_null(kind):
        return CATEGORY
    return str(kind)


def is_text(kind: pyarrow.DataType) -> bool:
    """Returns whether an Arrow type is one of the types of texts."""
    from pyarrow import types

    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def is_date_or_time(kind: str) -> bool:
    """Returns whether the description of a type is that of dates, times or durations."""
    return kind.startswith((DATE, "time", "duration"))


def leading_zeros(array: pyarrow.Array) -> np.ndarray:
    """Returns which texts of an Arrow string array begin with 0 and another digit, bool [n]."""
    from pyarrow import compute

    matches = compute.match_substring_regex(array, "^ *0[0-9]").fill_null(False)
    result: np.ndarray = matches.to_numpy(zero_copy_only=False)
    return result


def blocks_of_batches(
    path: Path, batches: Iterable[pyarrow.RecordBatch], names: Sequence[str]
) -> Iterator[Block]:
    """Yields the rows of a file. Raises `DataError` as `check_array` does."""
    first = 1
    for batch in batches:
        columns = {name: batch.column(name) for name in names}
        for name, array in columns.items():
            check_array(path, first, name, array)
        yield Block(columns, str(path), first)
        first += batch.num_rows


def check_array(path: Path, first: int, name: str, array: pyarrow.Array) -> None:
    """Raises `DataError` if values are not inside of the file, or if a text is not UTF-8.

    `first` is the number of the first row.
    """
    import pyarrow

    try:
        array.validate(full=True)
    except pyarrow.ArrowInvalid as error:
        raise DataError(
            f"{path}, rows {first} to {first + len(array) - 1}: column {name!r}: "
            f"{first_line(error)}",
            field="input_path",
            code="bad-record",
        ) from None


@contextlib.contextmanager
def read_error_scope(path: Path, what: str) -> Iterator[None]:
    """Turns an error of pyarrow into a `DataError` that names the file."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, EOFError, zlib.error, UnicodeError) as error:
        raise DataError(
            f"{path}: cannot be read as {what}: {first_line(error)}",
            field="input_path",
            code="damaged-file",
        ) from None


def _parquet_kinds(files: Sequence[Path], options: TableOptions) -> dict[str, str]:
    """Returns the kind of each column."""
    from pyarrow import parquet

    schemas = {}
    for path in files:
        with read_error_scope(path, "Parquet"), parquet.ParquetFile(path) as file:
            schemas[path] = file.schema_arrow
            _ = file.schema_arrow.names  # Raises an error for names that are not UTF-8.
    return kinds_of_schemas(schemas)


def _parquet_blocks(path: Path, names: Sequence[str], options: TableOptions) -> Iterator[Block]:
    """Yields the rows of a file."""
    from pyarrow import parquet

    with read_error_scope(path, "Parquet"), parquet.ParquetFile(path) as file:
        batches = file.iter_batches(BLOCK_ROWS, columns=list(names))
        yield from blocks_of_batches(path, batches, names)


PARQUET = TableReader(
    load_files("parquet", "*.parquet", _parquet_kinds, _parquet_blocks), file_start=b"PAR1"
)
