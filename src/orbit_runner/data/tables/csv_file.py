"""CSV files, read as texts; `build.py` converts them, so that an error names its row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.data.tables.arrow_types import kind_of, read_error_scope
from orbit_runner.data.tables.reader import (
    Block,
    TableOptions,
    TableReader,
    check_equal_names,
    table_files,
)
from orbit_runner.errors import DataError

_BLOCK_BYTES = 2**22


def load(*, data_dir: str, input_path: Sequence[str], options: TableOptions) -> TableReader:
    """Returns the reader of CSV files, whose first line names the columns.

    Files that end in `.gz` are decompressed. The kinds of columns are inferred from the first 4
    MiB. Raises `DataError` if a file is missing or damaged, or has other columns than the first.
    """
    files = table_files("csv", data_dir, input_path, "*.csv")
    schemas = [_read_schema(path, options) for path in files]
    names = [*schemas[0]]
    for path, schema in zip(files[1:], schemas[1:], strict=True):
        check_equal_names(path, [*schema], files[0], names)

    def blocks(wanted: Sequence[str]) -> Iterator[Block]:
        for path in files:
            yield from _read_blocks(path, wanted, options)

    return TableReader("csv", schemas[0], blocks, tuple(files), options)


def _read_schema(path: Path, options: TableOptions) -> dict[str, str]:
    with read_error_scope(path, "CSV"), _open_csv(path, options) as reader:
        schema = reader.schema
        names = schema.names  # Decodes them.
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{path}: has two columns {twice!r}", field="input_path")
    return {one.name: kind_of(one.type, from_text=True) for one in schema}


def _read_blocks(path: Path, names: Sequence[str], options: TableOptions) -> Iterator[Block]:
    first = 1
    with read_error_scope(path, "CSV"), _open_csv(path, options, names) as reader:
        for batch in reader:
            yield Block({name: batch.column(name) for name in names}, str(path), first)
            first += batch.num_rows


def _open_csv(path: Path, options: TableOptions, names: Sequence[str] | None = None) -> Any:
    import pyarrow
    from pyarrow import csv

    as_text = {} if names is None else dict.fromkeys(names, pyarrow.string())
    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(
            block_size=_BLOCK_BYTES, column_names=list(options.column_names) or None
        ),
        parse_options=csv.ParseOptions(delimiter=options.delimiter, newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            include_columns=names,
            column_types=as_text,
            null_values=list(options.missing_values),
            strings_can_be_null=True,
        ),
    )
