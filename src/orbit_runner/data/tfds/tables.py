"""Tables that TensorFlow Datasets has prepared: the features of an example that are single values.

Reads the records without TensorFlow.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orbit_runner.data.array_record.files import ArrayRecordFiles
from orbit_runner.data.tables.columns import CATEGORY, NUMBER
from orbit_runner.data.tables.dataset import Block, TableDataset, TableOptions, TableUse
from orbit_runner.data.tfds.description import (
    ARRAY_RECORD,
    PreparedSplit,
    kind_of_feature,
    read_split,
    version_folder,
)
from orbit_runner.data.tfrecord.example import features_of, value_of
from orbit_runner.data.tfrecord.framing import index_files, records_of
from orbit_runner.errors import DataError, shorten

if TYPE_CHECKING:
    from orbit_runner.config.schema.data import DataConfig

    _Converter = Callable[[Any], object]

_BLOCK_ROWS = 2**13
# From the index of a file of a split to its records, in order.
_Reader = Callable[[int], Iterator[bytes]]
_NUMBERS = ("int", "uint", "float", "bfloat")


class TfdsTable(TableDataset):
    """A prepared dataset. Its columns are the features, and classes are read as their names.

    Raises `DataError` if the dataset is not prepared, or a file is missing or damaged.
    """

    name = "tfds"

    def __init__(self, *, data_dir: str, input_path: Sequence[str], options: TableOptions) -> None:
        if input_path:
            raise DataError(
                f"tfds: got input_path {list(input_path)}, expected none: tfds_split names the "
                "files",
                field="input_path",
                code="not-allowed",
            )
        directory = version_folder(options.tfds_name, options.tfds_data_dir)
        self._split = read_split(directory, options.tfds_split, ("validation", "test"))
        if self._split.part is not None:
            raise DataError(
                f"tfds: got split {options.tfds_split!r}, expected a whole split; to split the "
                "rows of a table, set task.split",
                field="tfds_split",
                code="unknown-part",
            )
        features = self._split.features
        self.kinds = {name: _column_kind(feature) for name, feature in features.items()}
        self._texts = {name: _make_converter(self._split, name) for name in features}
        self._read = _open_records(self._split)
        self.files = self._split.files
        self.options = options

    def blocks(self, names: Sequence[str]) -> Iterator[Block]:
        """Yields the rows of each file."""
        texts = {name: self._texts[name] for name in names}
        for number, path in enumerate(self.files):
            yield from _read_blocks(path, self._read(number), texts)

    @classmethod
    def of_section(cls, data: DataConfig, options: TableOptions, use: TableUse) -> TableDataset:
        """Returns the table of a section, by default that of the split that it usually reads."""
        # With `task.split`, both sections read parts of the same rows.
        if not options.tfds_split and (data.is_training or use.is_split):
            options = dataclasses.replace(options, tfds_split="train")
        return super().of_section(data, options, use)


def _open_records(split: PreparedSplit) -> _Reader:
    if split.file_format != ARRAY_RECORD:
        split.check_records(sum(index.records for index in index_files(split.files)))
        return lambda number: records_of(split.files[number])
    files = ArrayRecordFiles(split.files)
    split.check_records(sum(files.counts))

    def read(number: int) -> Iterator[bytes]:
        for first in range(0, files.counts[number], _BLOCK_ROWS):
            last = min(first + _BLOCK_ROWS, files.counts[number])
            yield from files.read(number, range(first, last))

    return read


def _column_kind(feature: Any) -> str:
    """Returns the kind of a column; or a description of a feature that is not a single value."""
    name = kind_of_feature(feature)
    if name in ("ClassLabel", "Text"):
        return CATEGORY
    if name not in ("Tensor", "Scalar"):
        return name
    if feature.shape:
        return f"{name} [{', '.join(map(str, feature.shape))}]"
    return NUMBER if _dtype(feature).startswith(_NUMBERS) else CATEGORY


def _dtype(feature: Any) -> str:
    return np.dtype(feature.np_dtype).name


def _make_converter(split: PreparedSplit, name: str) -> _Converter:
    """Returns the function from a stored value to that of the column; None is a missing value."""
    feature = split.features[name]
    if kind_of_feature(feature) == "ClassLabel":
        classes = split.class_names(name) or ()
        # A label of -1 is unknown, as in the test sets of competitions.
        return lambda value: (
            None if value < 0 else (classes[value] if value < len(classes) else str(value))
        )
    if kind_of_feature(feature) in ("Tensor", "Scalar") and _dtype(feature) == "bool":
        return lambda value: "true" if value else "false"
    return lambda value: value.decode() if isinstance(value, bytes) else value


def _read_blocks(
    path: Path, records: Iterator[bytes], columns: Mapping[str, _Converter]
) -> Iterator[Block]:
    import pyarrow

    first = 1
    while chunk := list(itertools.islice(records, _BLOCK_ROWS)):
        rows = [
            _convert_row(path, number, record, columns)
            for number, record in enumerate(chunk, first)
        ]
        values = zip(*rows, strict=True) if columns else ()
        arrays = [pyarrow.array(column) for column in values]
        yield Block(dict(zip(columns, arrays, strict=True)), str(path), first)
        first += len(chunk)


def _convert_row(
    path: Path, number: int, record: bytes, columns: Mapping[str, _Converter]
) -> list[object]:
    try:
        features = features_of(record)
        values = []
    except ValueError as error:
        raise DataError(
            f"{path}, row {number}: {error}", field="tfds_name", code="bad-record"
        ) from None
    for name, convert in columns.items():
        try:
            values.append(_convert_value(features, name, convert))
        except ValueError as error:
            raise DataError(
                f"{path}, row {number}: column {name!r}: {error}, expected one value as "
                "features.json describes it",
                field="tfds_name",
                code="bad-record",
            ) from None
    return values


def _convert_value(features: Mapping[str, Any], name: str, convert: _Converter) -> object:
    if name not in features:
        raise ValueError("is missing")
    value = value_of(features[name])
    try:
        return convert(value)
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f"got {shorten(repr(value), 80)}") from None
