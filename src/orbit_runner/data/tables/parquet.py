"""Parquet files, read by row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from orbit_runner.data.tables.arrow_types import (
    BLOCK_ROWS,
    blocks_of_batches,
    kinds_of_schemas,
    read_error_scope,
)
from orbit_runner.data.tables.dataset import Block, TableOptions, TableReader, load_files


def _read_kinds(files: Sequence[Path], options: TableOptions) -> dict[str, str]:
    """Returns the kind of each column."""
    from pyarrow import parquet

    schemas = {}
    for path in files:
        with read_error_scope(path, "Parquet"), parquet.ParquetFile(path) as file:
            schemas[path] = file.schema_arrow
            _ = file.schema_arrow.names  # Raises an error for names that are not UTF-8.
    return kinds_of_schemas(schemas)


def _read_blocks(path: Path, names: Sequence[str], options: TableOptions) -> Iterator[Block]:
    """Yields the rows of a file."""
    from pyarrow import parquet

    with read_error_scope(path, "Parquet"), parquet.ParquetFile(path) as file:
        batches = file.iter_batches(BLOCK_ROWS, columns=list(names))
        yield from blocks_of_batches(path, batches, names)


PARQUET = TableReader(
    load_files("parquet", "*.parquet", _read_kinds, _read_blocks), file_start=b"PAR1"
)
