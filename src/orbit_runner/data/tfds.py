"""Images and tables that TensorFlow Datasets has prepared.

That package reads the descriptions, and does not import TensorFlow for what is used here. The
records are read as those of other files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orbit_runner.data.array_record import ArrayRecordFiles, ArrayRecordImages
from orbit_runner.data.tables.columns import CATEGORY, NUMBER
from orbit_runner.data.tables.dataset import (
    Block,
    TableDataset,
    TableOptions,
    TableReader,
)
from orbit_runner.data.tfrecord.example import features_of, value_of
from orbit_runner.data.tfrecord.framing import index_files
from orbit_runner.data.tfrecord.source import RecordImages, check_first_record
from orbit_runner.errors import DataError, first_line, shorten

_TFRECORD, _ARRAY_RECORD = "tfrecord", "array_record"
_BLOCK_ROWS = 2**13
_NUMBERS = ("int", "uint", "float", "bfloat")
# The usual name and the class of the two features of images.
_IMAGE_FEATURES = (("image", "Image"), ("label", "ClassLabel"))


@dataclasses.dataclass(frozen=True)
class PreparedSplit:
    """A split of a prepared dataset.

    Attributes:
        folder: The directory of the version.
        file_format: `tfrecord` or `array_record`.
        files: The files of the split, in order.
        features: The features of `tensorflow_datasets` by name; inner names follow after a slash.
    """

    folder: Path
    file_format: str
    files: tuple[Path, ...]
    features: Mapping[str, Any]

    def class_names(self, name: str) -> tuple[str, ...] | None:
        """Returns the names of the classes of a feature, or None if they are unknown.

        Raises `DataError` if their file is damaged, which the package ignores.
        """
        feature = self.features[name]
        if _kind_of_feature(feature) != "ClassLabel":
            return None
        path = Path(feature.get_names_filepath(os.fspath(self.folder), name))
        if not path.is_file():
            return None
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        names = tuple(line.strip() for line in lines if line.strip())
        if len(names) != feature.num_classes or names != tuple(feature.names):
            text = f"{path}: expected the {feature.num_classes:,} classes of features.json"
            raise DataError(text, field="tfds_data_dir", code="damaged-file")
        return names


def _kind_of_feature(feature: object) -> str:
    """Returns the name of the class of a feature, such as `Image`."""
    return type(feature).__name__


def read_split(
    name: str, data_dir: str, split: str, default_splits: Sequence[str] = ("train",)
) -> PreparedSplit:
    """Returns a split of the newest prepared version of a dataset.

    Args:
        name: `name`, `name/config` or `name:version`.
        data_dir: The directory of all datasets; by default `TFDS_DATA_DIR` or
            `~/tensorflow_datasets`.
        split: A split; by default the first one in `default_splits` that exists.
        default_splits: See `split`.

    Raises:
        DataError: The dataset is not prepared, there is no such split, or a file is missing or of
            another format.
    """
    info = _read_info(name, data_dir)
    directory = Path(info.data_dir)
    with _description_error_scope(directory):
        splits = dict(info.splits.items())
        shards = {key: [Path(path) for path in each.filepaths] for key, each in splits.items()}
        if not any(shards.values()):
            raise ValueError("no split has files")
    split = split or next((each for each in default_splits if each in splits), default_splits[0])
    if split not in splits:
        raise DataError(
            f"tfds: got split {split!r}, expected {', '.join(sorted(splits))}; for a part of one, "
            "set task.split",
            field="tfds_split",
            code="unknown-part",
        )
    file_format = info.file_format.value if info.file_format else _TFRECORD
    if file_format not in (_TFRECORD, _ARRAY_RECORD):
        raise DataError(
            f"tfds: got files of format {file_format} in {directory}, expected {_TFRECORD} or "
            f"{_ARRAY_RECORD}; prepare the dataset with --file_format={_TFRECORD}",
            field="tfds_name",
            code="not-supported",
        )
    features = dict(_flat_features(info.features, ""))
    return PreparedSplit(directory, file_format, tuple(shards[split]), features)


def _read_info(name: str, data_dir: str) -> Any:
    """Returns the `DatasetInfo` of a prepared dataset."""
    from tensorflow_datasets.core import read_only_builder, registered

    data_root = data_dir or os.environ.get("TFDS_DATA_DIR", "") or "~/tensorflow_datasets"
    directory = Path(data_root).expanduser()
    try:
        with _description_error_scope(directory, registered.DatasetNotFoundError):
            return read_only_builder.builder_from_files(name, data_dir=os.fspath(directory)).info
    except registered.DatasetNotFoundError:
        raise DataError(
            f"tfds: no prepared dataset {name} in {directory}; prepare it with TensorFlow "
            f"Datasets: tfds build {name} --data_dir={data_root}",
            field="tfds_name" if directory.is_dir() else "tfds_data_dir",
            code="missing-file",
        ) from None


@contextlib.contextmanager
def _description_error_scope(directory: Path, *passed: type[Exception]) -> Iterator[None]:
    """Converts errors of the package into a `DataError`; all are about the descriptions."""
    try:
        yield
    except passed:
        raise
    except Exception as error:
        raise DataError(
            f"{directory}: TensorFlow Datasets cannot read dataset_info.json and features.json "
            f"({type(error).__name__}: {first_line(error)[:200]})",
            field="tfds_data_dir",
            code="damaged-file",
        ) from None


def _flat_features(features: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yields the features in the order of features.json, in which names are sorted."""
    for name, feature in sorted(features.items()):
        if _kind_of_feature(feature) == "FeaturesDict":
            yield from _flat_features(feature, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", feature


def load(
    *,
    tfds_name: str,
    tfds_split: str = "",
    default_splits: Sequence[str] = ("train",),
    tfds_data_dir: str = "",
    any_size: bool = False,
) -> RecordImages | ArrayRecordImages:
    """Returns the images of a prepared dataset.

    The examples must have the features `image` (a JPEG or PNG file) and `label`, or other names for
    the only `Image` and the only `ClassLabel`. The arguments and the errors are those of
    `read_split`. If `any_size` is True, the first image need not be readable, because all images
    are resized.
    """
    prepared = read_split(tfds_name, tfds_data_dir, tfds_split, default_splits)
    image_key, label_key = _image_keys(prepared)
    is_array_record = prepared.file_format == _ARRAY_RECORD
    images_class = ArrayRecordImages if is_array_record else RecordImages
    images = images_class.open(
        prepared.files,
        name=f"tfds {tfds_name}",
        image_key=image_key,
        label_key=label_key,
        labels=prepared.class_names(label_key),
    )
    return check_first_record(images, any_size=any_size)


def _image_keys(prepared: PreparedSplit) -> tuple[str, str]:
    """Returns the features of the image and of the label."""
    features = prepared.features
    keys = []
    for key, kind in _IMAGE_FEATURES:
        named = [name for name, feature in features.items() if _kind_of_feature(feature) == kind]
        if key in features:
            named = [key]
        if len(named) != 1:
            raise DataError(
                f"{prepared.folder}: got features {', '.join(features)}, expected image and "
                "label, or one Image and one ClassLabel",
                field="tfds_name",
                code="bad-data",
            )
        keys += named
    return keys[0], keys[1]


def _load_table(
    *, options: TableOptions, default_splits: Sequence[str] = ("validation", "test")
) -> TableDataset:
    """Returns a prepared dataset as a table: its columns are the features that are single values.

    Classes are read as their names. Raises `DataError` if the dataset is not prepared, or a file is
    missing or damaged.
    """
    name, split_name = options.tfds_name, options.tfds_split
    split = read_split(name, options.tfds_data_dir, split_name, default_splits)
    if split.file_format == _ARRAY_RECORD:
        files = ArrayRecordFiles(split.files)
        counts, read = files.counts, files.read
    else:
        indexes = index_files(split.files)
        counts = tuple(index.records for index in indexes)

        def read(file: int, records: Sequence[int]) -> list[bytes]:
            return [*indexes[file].read(split.files[file], records)]

    def blocks(names: Sequence[str]) -> Iterator[Block]:
        for file, (path, count) in enumerate(zip(split.files, counts, strict=True)):
            for first in range(0, count, _BLOCK_ROWS):
                records = read(file, range(first, min(first + _BLOCK_ROWS, count)))
                yield _convert_block(split, names, records, path, 1 + first)

    kinds = {name: _column_kind(feature) for name, feature in split.features.items()}
    return TableDataset("tfds", kinds, blocks, split.files, options)


TABLE = TableReader(_load_table)


def _convert_block(
    split: PreparedSplit, names: Sequence[str], records: Sequence[bytes], path: Path, first: int
) -> Block:
    """Returns some columns of records, of which the first is row `first` of a file."""
    import pyarrow

    converters = {name: _make_converter(split, name) for name in names}
    rows = [
        _convert_row(f"{path}, row {number}", record, converters)
        for number, record in enumerate(records, first)
    ]
    columns = map(pyarrow.array, zip(*rows, strict=True))
    return Block(dict(zip(names, columns, strict=True)), str(path), first)


def _column_kind(feature: Any) -> str:
    """Returns the kind of a column; or a description of a feature that is not a single value."""
    name = _kind_of_feature(feature)
    if name in ("ClassLabel", "Text"):
        return CATEGORY
    if name not in ("Tensor", "Scalar"):
        return name
    if feature.shape:
        return f"{name} [{', '.join(map(str, feature.shape))}]"
    return NUMBER if _dtype(feature).startswith(_NUMBERS) else CATEGORY


def _dtype(feature: Any) -> str:
    return np.dtype(feature.np_dtype).name


def _make_converter(split: PreparedSplit, name: str) -> Callable[[Any], object]:
    """Returns the function from a stored value to that of the column; None is a missing value."""
    feature = split.features[name]
    if _kind_of_feature(feature) == "ClassLabel":
        classes = split.class_names(name) or ()
        # A label of -1 is unknown, as in the test sets of competitions.
        return lambda value: (
            None if value < 0 else (classes[value] if value < len(classes) else str(value))
        )
    if _kind_of_feature(feature) in ("Tensor", "Scalar") and _dtype(feature) == "bool":
        return lambda value: "true" if value else "false"
    return lambda value: value.decode() if isinstance(value, bytes) else value


def _convert_row(
    where: str, record: bytes, converters: Mapping[str, Callable[[Any], object]]
) -> list[object]:
    name = ""
    try:
        features = features_of(record)
        values = []
        for name, convert in converters.items():
            value: object = value_of(features[name])
            try:
                values.append(convert(value))
            except (ValueError, TypeError, AttributeError):
                raise ValueError(f"got {shorten(repr(value), 80)}") from None
    except (ValueError, KeyError) as error:
        problem = "is missing" if isinstance(error, KeyError) else str(error)
        column = f"column {name!r}: " if name else ""
        raise DataError(
            f"{where}: {column}{problem}, expected single values as features.json describes them",
            field="tfds_name",
            code="bad-record",
        ) from None
    return values
