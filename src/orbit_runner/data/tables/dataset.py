"""What a table is, however it is stored; does not import TensorFlow.

Each way of storing tables has a `TableReader`: a function that opens a table, whose rows are read
in blocks. Tasks and commands ask a `TableDataset`, and never how it is stored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orbit_runner.data.dataset import arguments_of
from orbit_runner.data.files import named_files
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.tables.columns import INTEGER, NUMBER
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
        tfds_split: Its split; "" for the usual one.
        tfds_data_dir: The directory of all its datasets.
        hugging_face_split: The part of a `DatasetDict` of Hugging Face; "" for the usual one.
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


@dataclasses.dataclass(frozen=True, eq=False)
class TableDataset:
    """A table that is read in blocks of rows.

    Attributes:
        name: The value of `source`, for messages.
        kinds: The kind of each column, inferred from the types in the files or from texts:
            `number`, `date` or `category`. Any other text describes a type that cannot be used.
        blocks: Yields the rows of some columns, in order.
        files: The files, if any.
        options: The options that the values depend on.
        integers: The columns of numbers that were inferred from texts of integers.
        classes: The categories whose texts the files declare, with these texts in their order.
    """

    name: str
    kinds: Mapping[str, str]
    blocks: Callable[[Sequence[str]], Iterator[Block]]
    files: tuple[Path, ...] = ()
    options: TableOptions = TableOptions()
    integers: frozenset[str] = frozenset()
    classes: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)


class TableReader(NamedTuple):
    """How a source of tables is read.

    Attributes:
        load: Opens a table; raises `DataError` if it is missing or damaged. An argument is a
            setting of a section, the `TableOptions` of its settings, or one of those in `open`. If
            rows to predict for are read, the arguments are `data_dir`, `input_path` and `options`.
        file_start: The first bytes of a file of rows to predict for, if this source reads such
            files.
        is_typed: Whether values have types. If not, the default of `missing_values` applies.
    """

    load: Callable[..., TableDataset]
    file_start: bytes | tuple[bytes, ...] = b""
    is_typed: bool = True

    def open(self, data: DataConfig, options: TableOptions, use: TableUse) -> TableDataset:
        """Returns the table of a section, which is opened once per process."""
        arguments = arguments_of(
            self.load,
            data,
            options=options,
            use=use,
            default_splits=usual_splits(data, is_split=use.is_split),
            num_examples=data.synthetic.num_examples,
        )
        return _open(self.load, **arguments)


@cache_source(maxsize=8)
def _open(load: Callable[..., TableDataset], **arguments: Any) -> TableDataset:
    return load(**arguments)


def load_files(
    name: str,
    pattern: str,
    read_kinds: Callable[[Sequence[Path], TableOptions], Mapping[str, str]],
    read_blocks: Callable[[Path, Sequence[str], TableOptions], Iterator[Block]],
) -> Callable[..., TableDataset]:
    """Returns the function of a `TableReader` for tables in files.

    Args:
        name: The value of `source`.
        pattern: The files of a directory that are read.
        read_kinds: Returns the kind of each column in all files, `integer` for numbers that were
            inferred from texts of integers.
        read_blocks: Yields the rows of some columns of a file.
    """

    def load(*, data_dir: str, input_path: Sequence[str], options: TableOptions) -> TableDataset:
        files = table_files(name, data_dir, input_path, pattern)
        kinds = read_kinds(files, options)
        return TableDataset(
            name,
            {column: NUMBER if kind == INTEGER else kind for column, kind in kinds.items()},
            lambda names: (b for path in files for b in read_blocks(path, names, options)),
            tuple(files),
            options,
            integers=frozenset(column for column, kind in kinds.items() if kind == INTEGER),
        )

    return load


def common_kinds(
    kinds_by_file: Mapping[Path, Mapping[str, str]], choose: Callable[[str, dict[Path, str]], str]
) -> dict[str, str]:
    """Returns the kind of each column in all files, which have the columns of the first.

    `choose` returns it for a name and the kind in each file. Raises `DataError` if a file lacks a
    column.
    """
    return {
        name: choose(name, {path: kinds[name] for path, kinds in kinds_by_file.items()})
        for name in check_columns(kinds_by_file)
    }


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


def check_columns(columns_by_file: Mapping[Path, Iterable[str]]) -> list[str]:
    """Returns the columns of the first file. Raises `DataError` if another file lacks one of them.

    Columns that the first file lacks are not used, which is a warning.
    """
    columns = {path: list(names) for path, names in columns_by_file.items()}
    (first, expected), *others = columns.items()
    for path, names in others:
        if more := [name for name in names if name not in expected]:
            used = f"only the columns of {first.name} are used, not {shorten(', '.join(more))}"
            note_once(f"warning: {path}: {used}")
        lacking = [name for name in expected if name not in names]
        if lacking:
            raise DataError(
                f"{path}: has no column {lacking[0]!r}, which {first.name} has\n"
                f"columns: {', '.join(names)}",
                field="input_path",
                code="unknown-column",
            )
    return expected


def check_different_names(path: Path, names: Sequence[str]) -> None:
    """Raises `DataError` if two columns of a file have the same name."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{path}: has two columns {twice!r}", field="input_path", code="set-twice")
