"""What all table formats have in common: the names and kinds of columns, and blocks of rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.data.files import named_files
from orbit_runner.errors import DataError

_HINT = "set data_dir to the directory of the files, or input_path to files or patterns"


@dataclasses.dataclass(frozen=True)
class TableOptions:
    """How to read a table.

    Attributes:
        delimiter: The character between the columns of a CSV file.
        column_names: The columns of CSV files without a header.
        missing_values: The texts that mean that a value is missing, with or without spaces around.
        function: `module:function` that returns arrays by name.
        files: The classes, each with the names of its text files.
        tfds_name: The dataset of TensorFlow Datasets.
        tfds_splits: Its splits, of which the first that exists is read.
        max_bad_records: How many rows may be left out because they cannot be read.
    """

    delimiter: str = ","
    column_names: tuple[str, ...] = ()
    missing_values: tuple[str, ...] = ()
    function: str = ""
    files: tuple[tuple[str, tuple[str, ...]], ...] = ()
    tfds_name: str = ""
    tfds_splits: tuple[str, ...] = ()
    max_bad_records: int = 0


@dataclasses.dataclass(frozen=True)
class Block:
    """Consecutive rows of a file.

    Attributes:
        columns: Arrow arrays by name, all of the same length.
        file: The name of the file, for messages.
        first: The number of the first row in the file, from 1.
        bad: Why rows of the block cannot be read, by their number in the block, from 0.
    """

    columns: Mapping[str, Any]
    file: str
    first: int
    bad: Mapping[int, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, eq=False)
class TableReader:
    """A table that can be read in blocks of rows.

    Attributes:
        name: Name of the data source, for messages.
        kinds: The kind of each column, inferred from the types in the files or from texts: `number`
            or `category`. Any other text describes a type that cannot be used.
        blocks: Returns the rows of some columns, in order.
        files: The files, if any.
        options: The options that the values depend on.
        integers: The columns of numbers that were inferred from texts of integers.
        extra: The columns that only some files have, which cannot be used, and the first such file.
        skipped: Other files in the directory of the table, which are not read.
    """

    name: str
    kinds: Mapping[str, str]
    blocks: Callable[[Sequence[str]], Iterator[Block]]
    files: tuple[Path, ...] = ()
    options: TableOptions = TableOptions()
    integers: frozenset[str] = frozenset()
    extra: Mapping[str, str] = dataclasses.field(default_factory=dict)
    skipped: tuple[str, ...] = ()


def table_files(
    source: str, data_dir: str, input_path: Sequence[str], default_pattern: str
) -> list[Path]:
    """Returns the files of `input_path`, or those in `data_dir` that match `default_pattern`.

    They are in the order of their names. Raises `DataError` if there are none.
    """
    if not data_dir and not input_path:
        raise DataError(f"{source}: no files are set; {_HINT}")
    return named_files(source, data_dir, input_path or (default_pattern,))


def skipped_files(
    data_dir: str, input_path: Sequence[str], files: Sequence[Path]
) -> tuple[str, ...]:
    """Returns the names of files in `data_dir` that are not read; none if `input_path` is set."""
    if input_path or not data_dir:
        return ()
    listed = sorted(Path(data_dir).expanduser().iterdir())
    read = {path.name for path in files}
    return tuple(
        path.name
        for path in listed
        if path.is_file() and path.name not in read and not path.name.startswith(".")
    )


def extra_columns(files: Sequence[Path], names: Sequence[Sequence[str]]) -> dict[str, str]:
    """Returns the columns that the first file does not have, and the name of a file with each."""
    extra: dict[str, str] = {}
    for path, columns in zip(files[1:], names[1:], strict=True):
        for name in columns:
            if name not in names[0]:
                extra.setdefault(name, path.name)
    return extra


def check_equal_names(
    path: Path, names: Sequence[str], first: Path, expected: Sequence[str]
) -> None:
    """Raises `DataError` if a file has other columns than the first file."""
    lacking = [name for name in expected if name not in names]
    if lacking:
        raise DataError(
            f"{path}: has no column {lacking[0]!r}, which {first.name} has\n"
            f"columns: {', '.join(names)}",
            field="input_path",
        )


def check_different_names(path: Path, names: Sequence[str]) -> None:
    """Raises `DataError` if two columns of a file have the same name."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{path}: has two columns {twice!r}", field="input_path")
