"""Parquet files, read by row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from orbit_runner.data.tables.arrow_types import kind_of, read_error_scope
from orbit_runner.data.tables.reader import (
    Block,
    TableOptions,
    TableReader,
    check_equal_names,
    table_files,
)

_BLOCK_ROWS = 2**16


def load(*, data_dir: str, input_path: Sequence[str], options: TableOptions) -> TableReader:
    """Returns the reader of Parquet files.

    Raises `DataError` if a file is missing or damaged, or has other columns than the first.
    """
    files = table_files("parquet", data_dir, input_path, "*.parquet")
    schemas = [_read_schema(path) for path in files]
    for path, schema in zip(files[1:], schemas[1:], strict=True):
        check_equal_names(path, [*schema], files[0], [*schemas[0]])

    def blocks(names: Sequence[str]) -> Iterator[Block]:
        for path in files:
            yield from _read_blocks(path, names)

    return TableReader("parquet", schemas[0], blocks, tuple(files), options)


def _read_schema(path: Path) -> dict[str, str]:
    from pyarrow import parquet

    with read_error_scope(path, "Parquet"), parquet.ParquetFile(path) as file:
        return {one.name: kind_of(one.type) for one in file.schema_arrow}


def _read_blocks(path: Path, names: Sequence[str]) -> Iterator[Block]:
    from pyarrow import parquet

    first = 1
    with read_error_scope(path, "Parquet"), parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(_BLOCK_ROWS, columns=list(names)):
            yield Block({name: batch.column(name) for name in names}, str(path), first)
            first += batch.num_rows
