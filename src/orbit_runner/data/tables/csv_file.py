"""CSV files, read as texts; `build.py` converts them, so that an error names its row."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.data.tables.arrow import kind_of, leading_zeros, read_error_scope
from orbit_runner.data.tables.columns import CATEGORY, DATE, INTEGER, NUMBER
from orbit_runner.data.tables.dataset import (
    Block,
    TableOptions,
    TableReader,
    check_different_names,
    common_kinds,
    load_files,
)
from orbit_runner.data.text.lines import open_binary
from orbit_runner.errors import DataError

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.csv import CSVStreamingReader

_BLOCK_BYTES = 2**22


def _read_kinds(files: Sequence[Path], options: TableOptions) -> dict[str, str]:
    """Returns the kind of each column, that of the first 4 MiB of each file.

    It is a number if all cells are numbers. A later cell that is not a number is an error when it
    is read, and `cell_texts.odd_among_numbers` judges all cells of a column of texts.
    """
    return common_kinds({path: _read_file_kinds(path, options) for path in files}, _common_kind)


def _read_file_kinds(path: Path, options: TableOptions) -> dict[str, str]:
    """Returns the kind of each column in the first block of a file."""
    with _csv_error_scope(path), _open_csv(path, options) as reader:
        schema = reader.schema
        check_different_names(path, schema.names)  # Decodes them.
    kinds = {field.name: _kind_of_type(field.type) for field in schema}
    unclear = [name for name, kind in kinds.items() if not kind]
    if unclear:
        with _csv_error_scope(path), _open_csv(path, options, unclear) as reader:
            kinds |= _kinds_of_texts(reader, unclear, options)
    return kinds


def _common_kind(name: str, kinds_by_file: Mapping[Path, str]) -> str:
    """Returns the kind of a column in all files: a category if it is one in any of them."""
    kinds = {*kinds_by_file.values()}
    if DATE in kinds:
        return DATE if kinds == {DATE} else CATEGORY
    if CATEGORY in kinds:
        return CATEGORY
    if NUMBER in kinds:
        return NUMBER
    return INTEGER if INTEGER in kinds else CATEGORY


def _read_blocks(path: Path, names: Sequence[str], options: TableOptions) -> Iterator[Block]:
    """Yields the rows of a file as texts."""
    first = 1
    last: list[str | None] = []
    with _csv_error_scope(path), _open_csv(path, options, names, reads_all=True) as reader:
        for batch in reader:
            yield Block({name: batch.column(name) for name in names}, str(path), first)
            first += batch.num_rows
            if batch.num_rows:
                last = [batch.column(name)[-1].as_py() for name in names]
    if any("\n" in (text or "") for text in last) and b"\n" in _after_last_quote(path).strip():
        raise DataError(
            f"{path}, row {first - 1}: has a quotation mark without an end, so that the lines "
            "after it are part of the cell",
            field="input_path",
            code="bad-record",
        )


# The first line of each file names the columns. Files that end in `.gz` are decompressed.
CSV = TableReader(load_files("csv", "*.csv", _read_kinds, _read_blocks), is_typed=False)


def _kind_of_type(kind: pyarrow.DataType) -> str:
    """Returns the kind of a column of an inferred type; "" if only its texts tell."""
    from pyarrow import types

    is_unclear = types.is_null(kind) or types.is_string(kind) or types.is_integer(kind)
    return "" if is_unclear else kind_of(kind, from_text=True)


def _kinds_of_texts(
    reader: CSVStreamingReader, names: Sequence[str], options: TableOptions
) -> dict[str, str]:
    """Returns the kinds of columns by the first block in which they have values."""
    import pyarrow
    from pyarrow import compute

    missing = pyarrow.array([text.strip() for text in ("", *options.missing_values)])
    kinds: dict[str, str] = {}
    for batch in reader:
        for name in (name for name in names if name not in kinds):
            # Arrow keeps some of the spaces around numbers.
            texts = compute.utf8_trim_whitespace(batch.column(name)).drop_null()
            values = texts.filter(compute.invert(compute.is_in(texts, missing)))
            if len(values):
                kinds[name] = _kind_of_values(values)
        if len(kinds) == len(names):
            break
    return kinds


def _kind_of_values(texts: pyarrow.Array) -> str:
    import pyarrow

    for kind, result in ((pyarrow.int64(), INTEGER), (pyarrow.float64(), NUMBER)):
        try:
            texts.cast(kind)
        except pyarrow.ArrowInvalid:
            continue
        # Arrow reads 007 as 7.
        return CATEGORY if result == INTEGER and leading_zeros(texts).any() else result
    return CATEGORY


def _after_last_quote(path: Path) -> bytes:
    end = b""
    with open_binary(path) as file:
        while block := file.read(_BLOCK_BYTES):
            end = block.rpartition(b'"')[2] if b'"' in block else end + block
    return end


@contextlib.contextmanager
def _csv_error_scope(path: Path) -> Iterator[None]:
    try:
        with read_error_scope(path, "CSV"):
            yield
    except DataError as error:
        if "UTF" not in str(error):
            raise
        raise DataError(
            f"{error}\nsave the file as UTF-8", field="input_path", code="damaged-file"
        ) from None


def _open_csv(
    path: Path,
    options: TableOptions,
    names: Sequence[str] | None = None,
    *,
    reads_all: bool = False,
) -> CSVStreamingReader:
    import pyarrow
    from pyarrow import csv

    as_text = {} if names is None else dict.fromkeys(names, pyarrow.string())
    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(
            block_size=_BLOCK_BYTES,
            column_names=list(options.column_names) or None,
            use_threads=reads_all,  # With threads, later blocks are read ahead.
        ),
        parse_options=csv.ParseOptions(delimiter=options.delimiter, newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            include_columns=names,
            column_types=as_text,
            # An empty cell is always a missing value.
            null_values=list({"": None} | dict.fromkeys(options.missing_values)),
            strings_can_be_null=True,
        ),
    )
