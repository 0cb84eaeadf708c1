"""Tables in Arrow files, such as those of a dataset that Hugging Face's `datasets` saved."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.data.hugging_face.files import FILE_STARTS, NAME, open_dataset
from orbit_runner.data.tables.columns import CATEGORY, NUMBER
from orbit_runner.data.tables.dataset import Block, TableDataset, TableOptions, TableUse
from orbit_runner.data.tables.parquet import BLOCK_ROWS, ArrowTypedFiles, check_utf8
from orbit_runner.errors import DataError

if TYPE_CHECKING:
    import pyarrow

    from orbit_runner.config.schema.data import DataConfig


class HuggingFaceTable(ArrowTypedFiles):
    """A saved dataset, or Arrow files. A column of `ClassLabel` is read as the names of classes.

    Attributes:
        saved: The files and the features of the dataset.
    """

    name = NAME
    file_start = FILE_STARTS

    def __init__(self, *, data_dir: str, input_path: Sequence[str], options: TableOptions) -> None:
        splits = options.default_splits or ("train",)
        self.saved = open_dataset(data_dir, input_path, options.hugging_face_split, splits)
        self.options = options
        self.files = self.saved.files
        kinds = dict(self.read_kinds())
        names = {name: self.saved.class_names(name) for name in kinds if kinds[name] == NUMBER}
        # Categories are compared without spaces at both ends.
        self.classes = {
            name: tuple(text.strip() for text in texts) for name, texts in names.items() if texts
        }
        self.kinds = kinds | dict.fromkeys(self.classes, CATEGORY)
        # The names of classes are in the descriptions.
        self.files = (*self.saved.files, *self.saved.descriptions)

    @classmethod
    def of_section(cls, data: DataConfig, options: TableOptions, use: TableUse) -> TableDataset:
        """Returns the table of a section, by default of the part that it usually reads."""
        splits = usual_splits(data, is_split=use.is_split)
        options = dataclasses.replace(options, default_splits=splits)
        return super().of_section(data, options, use)

    def read_schema(self, path: Path) -> pyarrow.Schema:
        """Returns the names and the types of the columns of a file."""
        return self._rows(path).schema

    def blocks(self, names: Sequence[str]) -> Iterator[Block]:
        """Yields the rows of some columns, in order."""
        for path in self.saved.files:
            yield from self.read_blocks(path, names)

    def read_blocks(self, path: Path, names: Sequence[str]) -> Iterator[Block]:
        """Yields the rows of a file."""
        first = 1
        for batch in self._rows(path).select(names).to_batches(BLOCK_ROWS):
            columns = {
                name: self._read_column(path, first, name, batch.column(name)) for name in names
            }
            yield Block(columns, str(path), first)
            first += batch.num_rows

    def _rows(self, path: Path) -> pyarrow.Table:
        return self.saved.tables[self.saved.files.index(path)]

    def _read_column(
        self, path: Path, first: int, name: str, array: pyarrow.Array
    ) -> pyarrow.Array:
        check_array(path, name, array)
        if name in self.classes:
            return _to_classes(path, first, name, array, self.classes[name])
        check_utf8(path, first, name, array)
        return array


def usual_splits(data: DataConfig, *, is_split: bool) -> tuple[str, ...]:
    """Returns the parts of a `DatasetDict` of which a section reads the first that exists.

    If `task.split` splits the rows, `is_split`, both sections read the same part.
    """
    return ("train",) if data.is_training or is_split else ("validation", "test")


def check_array(path: Path, name: str, array: pyarrow.Array) -> None:
    """Raises `DataError` if the values of a column are not inside of the file."""
    import pyarrow
    from pyarrow import types

    kind = array.type
    try:
        # Texts as bytes, because those that are not UTF-8 have an error of their own.
        if types.is_string(kind) or types.is_large_string(kind):
            large = types.is_large_string(kind)
            array = array.view(pyarrow.large_binary() if large else pyarrow.binary())
        array.validate(full=not types.is_string_view(kind))
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
        raise DataError(
            f"{path}: column {name!r} is damaged: {error}", field="input_path", code="damaged-file"
        ) from None


def _to_classes(
    path: Path, first: int, name: str, array: pyarrow.Array, classes: Sequence[str]
) -> pyarrow.Array:
    """Returns the names of the classes of an Arrow array of their numbers."""
    import pyarrow
    from pyarrow import compute

    numbers = array.cast(pyarrow.int64())
    # A label of -1 is unknown, as in the test sets of competitions.
    known = compute.greater_equal(numbers, 0)
    numbers = compute.if_else(known, numbers, pyarrow.scalar(None, pyarrow.int64()))
    largest = compute.max(numbers).as_py()
    if largest is not None and largest >= len(classes):
        row = first + compute.index(numbers, largest).as_py()
        raise DataError(
            f"{path}, row {row}: column {name!r}: got class {largest}, expected 0 to "
            f"{len(classes) - 1}",
            field="data_dir",
            code="bad-record",
        )
    return pyarrow.array(classes, pyarrow.string()).take(numbers)
