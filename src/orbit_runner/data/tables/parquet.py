"""Parquet files, read by row groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.data.tables.arrow_types import kind_of, read_error_scope
from orbit_runner.data.tables.columns import CATEGORY
from orbit_runner.data.tables.dataset import Block, TableFiles, check_different_names
from orbit_runner.errors import DataError, first_line

if TYPE_CHECKING:
    import pyarrow

BLOCK_ROWS = 2**16
_NULL = "null"  # A column without any value, which fits any kind.


class ArrowTypedFiles(TableFiles):
    """Files whose columns have Arrow types."""

    def read_schema(self, path: Path) -> pyarrow.Schema:
        """Returns the names and the types of the columns of a file."""
        raise NotImplementedError

    def read_file_kinds(self, path: Path) -> Mapping[str, str]:
        """Returns the kind of each column in a file."""
        from pyarrow.types import is_null

        schema = self.read_schema(path)
        check_different_names(path, schema.names)
        return {
            field.name: _NULL if is_null(field.type) else kind_of(field.type) for field in schema
        }

    def common_kind(self, name: str, kinds: Sequence[str]) -> str:
        """Returns the kind of a column in all files. Raises `DataError` if it differs."""
        files = dict(zip(kinds, self.files, strict=True))
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


class ParquetTable(ArrowTypedFiles):
    """Parquet files."""

    name = "parquet"
    pattern = "*.parquet"
    file_start = b"PAR1"

    def read_schema(self, path: Path) -> pyarrow.Schema:
        """Returns the names and the types of the columns of a file."""
        from pyarrow import parquet

        with read_error_scope(path, "Parquet"), parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            _ = schema.names  # Raises an error for names that are not UTF-8.
        return schema

    def read_blocks(self, path: Path, names: Sequence[str]) -> Iterator[Block]:
        """Yields the rows of a file."""
        from pyarrow import parquet

        first = 1
        with read_error_scope(path, "Parquet"), parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(BLOCK_ROWS, columns=list(names)):
                for name in names:
                    check_array(path, first, name, batch.column(name))
                yield Block({name: batch.column(name) for name in names}, str(path), first)
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
