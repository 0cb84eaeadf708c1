"""CSV files, read as texts; `build.py` converts them, so that an error names its row."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.data.tables.arrow_types import kind_of, leading_zeros, read_error_scope
from orbit_runner.data.tables.columns import CATEGORY, DATE, INTEGER, NUMBER
from orbit_runner.data.tables.dataset import (
    Block,
    TableFiles,
    TableOptions,
    check_different_names,
)
from orbit_runner.data.text.lines import open_binary, read_lines_or_problems
from orbit_runner.errors import DataError

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.csv import CSVStreamingReader

_BLOCK_BYTES = 2**22
_FIRST_ROWS = 100
# The kinds of a column without any value so far, and of a column whose texts may have spaces.
_EMPTY, _TEXT = "", "text"


class CsvTable(TableFiles):
    """CSV files, whose first line names the columns.

    Files that end in `.gz` are decompressed. The kind of a column is that of the first 4 MiB of
    each file: numbers if all are numbers. A later cell that is not a number is an error when it is
    read, and `cell_texts.find_misreading` judges all cells of a column of texts.
    """

    name = "csv"
    is_typed = False
    pattern = "*.csv"

    def read_kinds(self) -> Mapping[str, str]:
        """Returns the kind of each column in all files."""
        kinds = super().read_kinds()
        self.integers = frozenset(name for name, kind in kinds.items() if kind == INTEGER)
        return {name: NUMBER if kind == INTEGER else kind for name, kind in kinds.items()}

    def read_file_kinds(self, path: Path) -> Mapping[str, str]:
        """Returns the kind of each column in the first block of a file."""
        with _csv_error_scope(path), _open_csv(path, self.options) as reader:
            schema = reader.schema
            names = schema.names  # Decodes them.
            check_different_names(path, names)
            kinds = {field.name: _text_kind(field.type) for field in schema}
            first = next(iter(reader), None) if _TEXT in kinds.values() else None
        for name in (name for name, kind in kinds.items() if kind == _TEXT):
            kinds[name] = (
                CATEGORY if first is None else _kind_of_spaced(first.column(name), self.options)
            )
        unclear = [name for name, kind in kinds.items() if kind in (_EMPTY, INTEGER)]
        if unclear:
            with _csv_error_scope(path), _open_csv(path, self.options, unclear) as reader:
                kinds |= _kinds_of_texts(reader, kinds, unclear)
        return kinds

    def common_kind(self, name: str, kinds: Sequence[str]) -> str:
        """Returns the kind of a column in all files: a category if it is one in any of them."""
        if DATE in kinds:
            return DATE if {*kinds} == {DATE} else CATEGORY
        if CATEGORY in kinds:
            return CATEGORY
        if NUMBER in kinds:
            return NUMBER
        return INTEGER if INTEGER in kinds else CATEGORY

    def read_blocks(self, path: Path, names: Sequence[str]) -> Iterator[Block]:
        """Yields the rows of a file as texts."""
        first = 1
        last = ""
        last_column = [*self.file_kinds[path]][-1]
        with _csv_error_scope(path), _open_csv(path, self.options, names, reads_all=True) as reader:
            for batch in reader:
                yield Block({name: batch.column(name) for name in names}, str(path), first)
                first += batch.num_rows
                if batch.num_rows and last_column in names:
                    last = batch.column(last_column)[-1].as_py() or ""
        if "\n" in last and b"\n" in _after_last_quote(path).strip():
            raise DataError(
                f"{path}, row {first - 1}: has a quotation mark without an end, so that the lines "
                "after it are part of the cell",
                field="input_path",
                code="bad-record",
            )


def _kinds_of_texts(
    reader: CSVStreamingReader, kinds: Mapping[str, str], unclear: Sequence[str]
) -> dict[str, str]:
    """Returns the kinds of columns of integers, or without a value in the first block."""
    result: dict[str, str] = {}
    for batch in reader:
        for name in unclear:
            array = batch.column(name)
            if name in result or array.null_count == len(array):
                continue
            kind = kinds[name] or _inferred_kind(array)
            # Arrow reads 007 as 7.
            is_code = kind == INTEGER and leading_zeros(array).any()
            result[name] = CATEGORY if is_code else kind
        if len(result) == len(unclear):
            break
    return result


def _inferred_kind(texts: pyarrow.Array) -> str:
    import pyarrow

    for kind, result in ((pyarrow.int64(), INTEGER), (pyarrow.float64(), NUMBER)):
        try:
            texts.cast(kind)
        except pyarrow.ArrowInvalid:
            continue
        return result
    return CATEGORY


def _text_kind(kind: pyarrow.DataType) -> str:
    from pyarrow import types

    if types.is_null(kind):
        return _EMPTY
    if types.is_string(kind):
        return _TEXT
    return INTEGER if types.is_integer(kind) else kind_of(kind, from_text=True)


def _kind_of_spaced(texts: pyarrow.Array, options: TableOptions) -> str:
    """Returns the kind of texts without spaces at both ends, where Arrow keeps some of them."""
    import pyarrow
    from pyarrow import compute

    # A text among the first rows shows quickly that most columns are categories.
    for part in (texts[:_FIRST_ROWS], texts):
        trimmed = compute.utf8_trim_whitespace(part)
        missing = [text.strip() for text in ("", *options.missing_values)]
        values = trimmed.filter(compute.invert(compute.is_in(trimmed, pyarrow.array(missing))))
        kind = _inferred_kind(values.drop_null())
        if kind == CATEGORY:
            return CATEGORY
    return CATEGORY if leading_zeros(values.drop_null()).any() and kind == INTEGER else NUMBER


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
        problems = (problem for _, problem in read_lines_or_problems(path) if problem)
        problem = next(problems, "")
        if not problem:
            raise
        raise DataError(
            f"{problem}\nsave the file as UTF-8", field="input_path", code="damaged-file"
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
