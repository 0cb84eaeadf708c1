"""What a table is, however it is stored; does not import TensorFlow.

Each way of storing tables is a subclass beside its reader: it declares what it reads of a config,
and reads its rows in blocks. Tasks and commands ask a dataset, and never which of them it is.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from orbit_runner.config.schema.data import input_paths
from orbit_runner.data.files import named_files
from orbit_runner.data.source_cache import cache_source
from orbit_runner.errors import DataError, shorten
from orbit_runner.utils.log import note_once

if TYPE_CHECKING:
    import pyarrow

    from orbit_runner.config.schema.data import DataConfig

_HINT = "set data_dir to the directory of the files, or input_path to files or patterns"


@dataclasses.dataclass(frozen=True)
class TableOptions:
    """How to read a table: the settings of a data section that only some formats have.

    Attributes:
        delimiter: The character between the columns of a CSV file.
        column_names: The columns of CSV files without a header.
        missing_values: The texts that mean that a value is missing, with or without spaces around.
        function: `module:function` that returns arrays by name.
        files: The classes, each with the names of its text files.
        tfds_name: The dataset of TensorFlow Datasets.
        tfds_split: Its split; "" for the first of `default_splits` that it has.
        tfds_data_dir: The directory of all its datasets.
        hugging_face_split: The part of a `DatasetDict` of Hugging Face; "" for the first of
            `default_splits` that it has.
        default_splits: The parts that a section usually reads.
    """

    delimiter: str = ","
    column_names: tuple[str, ...] = ()
    missing_values: tuple[str, ...] = ()
    function: str = ""
    files: tuple[tuple[str, tuple[str, ...]], ...] = ()
    tfds_name: str = ""
    tfds_split: str = ""
    tfds_data_dir: str = ""
    hugging_face_split: str = ""
    default_splits: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class TableUse:
    """What a task uses a table for.

    Attributes:
        kinds: The columns that the config names, each with its kind.
        has_features: Whether the config names those that are features.
        is_split: Whether both sections may read parts of the same rows.
    """

    kinds: tuple[tuple[str, str], ...] = ()
    has_features: bool = False
    is_split: bool = False


@dataclasses.dataclass(frozen=True)
class Block:
    """Consecutive rows of a file.

    Attributes:
        columns: Arrow arrays by name, all of the same length.
        file: The name of the file, for messages.
        first: The number of the first row in the file, from 1.
    """

    columns: Mapping[str, pyarrow.Array]
    file: str
    first: int


class TableDataset(abc.ABC):
    """A table that is read in blocks of rows.

    Attributes:
        kinds: The kind of each column, inferred from the types in the files or from texts:
            `number`, `date` or `category`. Any other text describes a type that cannot be used.
        files: The files, if any.
        options: The options that the values depend on.
        integers: The columns of numbers that were inferred from texts of integers.
        classes: The categories whose texts the files declare, with these texts in their order.
    """

    name: ClassVar[str]  # The value of `source`.
    # The first bytes of a file of rows to predict for, if this class reads such files.
    file_start: ClassVar[bytes | tuple[bytes, ...]] = b""
    # Whether values have types. If not, the default of `missing_values` applies.
    is_typed: ClassVar[bool] = True
    # Whether a section reads one of several stored parts.
    has_parts: ClassVar[bool] = False

    kinds: Mapping[str, str]
    files: tuple[Path, ...] = ()
    options: TableOptions = TableOptions()
    integers: frozenset[str] = frozenset()
    classes: Mapping[str, tuple[str, ...]] = MappingProxyType({})

    @abc.abstractmethod
    def blocks(self, names: Sequence[str]) -> Iterator[Block]:
        """Yields the rows of some columns, in order."""

    @classmethod
    def of_section(cls, data: DataConfig, options: TableOptions, use: TableUse) -> TableDataset:
        """Returns the table of a section, which is opened once per process.

        `data` is the section. Raises `DataError` if the table is missing or damaged.
        """
        if cls.has_parts:
            splits = usual_splits(data, is_split=use.is_split)
            options = dataclasses.replace(options, default_splits=splits)
        return _open(cls, data.data_dir, input_paths(data), options)


@cache_source(maxsize=8)
def _open(
    table: Callable[..., TableDataset],
    data_dir: str,
    input_path: tuple[str, ...],
    options: TableOptions,
) -> TableDataset:
    dataset: TableDataset = table(data_dir=data_dir, input_path=input_path, options=options)
    return dataset


class TableFiles(TableDataset):
    """A table in files that have the columns of the first one.

    Raises `DataError` if a file is missing or damaged, or lacks a column of the first.

    Attributes:
        file_kinds: The kind of each column in each file.
    """

    pattern: ClassVar[str]  # The files of a directory that are read.
    file_kinds: Mapping[Path, Mapping[str, str]]

    def __init__(self, *, data_dir: str, input_path: Sequence[str], options: TableOptions) -> None:
        self.options = options
        self.files = tuple(table_files(self.name, data_dir, input_path, self.pattern))
        self.kinds = self.read_kinds()

    def read_kinds(self) -> Mapping[str, str]:
        """Returns the kind of each column in all files."""
        self.file_kinds = {path: self.read_file_kinds(path) for path in self.files}
        files = [*self.file_kinds.values()]
        check_columns(self.files, files)
        return {name: self.common_kind(name, [kinds[name] for kinds in files]) for name in files[0]}

    def read_file_kinds(self, path: Path) -> Mapping[str, str]:
        """Returns the kind of each column in a file."""
        raise NotImplementedError

    def common_kind(self, name: str, kinds: Sequence[str]) -> str:
        """Returns the kind of a column in all files, given that in each file."""
        return kinds[0]

    def blocks(self, names: Sequence[str]) -> Iterator[Block]:
        """Yields the rows of some columns, in order."""
        for path in self.files:
            yield from self.read_blocks(path, names)

    @abc.abstractmethod
    def read_blocks(self, path: Path, names: Sequence[str]) -> Iterator[Block]:
        """Yields the rows of a file."""


def table_files(
    source: str, data_dir: str, input_path: Sequence[str], default_pattern: str
) -> list[Path]:
    """Returns the files of `input_path`, or those in `data_dir` that match `default_pattern`.

    They are in the order of their names. Raises `DataError` if there are none.
    """
    if not data_dir and not input_path:
        raise DataError(f"{source}: no files are set; {_HINT}", code="not-set")
    return named_files(source, data_dir, input_path or (default_pattern,))


def usual_splits(data: DataConfig, *, is_split: bool) -> tuple[str, ...]:
    """Returns the parts of a stored dataset of which a section reads the first that exists.

    If `task.split` splits the rows, `is_split`, both sections read the same part.
    """
    return ("train",) if data.is_training or is_split else ("validation", "test")


def check_columns(files: Sequence[Path], columns: Sequence[Iterable[str]]) -> None:
    """Raises `DataError` if a file lacks a column of the first; `columns` has the names of each.

    Columns that the first file lacks are not used, which is a warning.
    """
    first, *others = (list(names) for names in columns)
    for path, names in zip(files[1:], others, strict=True):
        if more := [name for name in names if name not in first]:
            used = f"only the columns of {files[0].name} are used, not {shorten(', '.join(more))}"
            note_once(f"warning: {path}: {used}")
        lacking = [name for name in first if name not in names]
        if lacking:
            raise DataError(
                f"{path}: has no column {lacking[0]!r}, which {files[0].name} has\n"
                f"columns: {', '.join(names)}",
                field="input_path",
                code="unknown-column",
            )


def check_different_names(path: Path, names: Sequence[str]) -> None:
    """Raises `DataError` if two columns of a file have the same name."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{path}: has two columns {twice!r}", field="input_path", code="set-twice")
