"""Images in TFRecord files in Model Garden's format; NumPy only, to report a bad file early."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from orbit_runner.data.bad_records.tfrecords import find_bad_records
from orbit_runner.data.files import named_files
from orbit_runner.data.images.headers import ImageSurvey
from orbit_runner.data.tfrecord.example import bytes_of, example_problem, features_of, image_shape
from orbit_runner.data.tfrecord.framing import (
    BLOCK_RECORDS,
    FileIndex,
    first_record,
    record_data,
    record_starts,
)
from orbit_runner.data.tfrecord.index_cache import index_files
from orbit_runner.errors import DataError

IMAGE, LABEL = "image/encoded", "image/class/label"


@dataclasses.dataclass(frozen=True, eq=False)
class Blocks:
    """The blocks of all files, in stored order; a block is read at once. Fields are int64 [k]."""

    file: np.ndarray  # Index of the file.
    offset: np.ndarray  # First byte in the file.
    length: np.ndarray  # In bytes.
    records: np.ndarray  # Number of records, at least 1.
    first: np.ndarray  # Index of the first record, counted through all files.
    place: np.ndarray  # Index of the first record in its own file.


@dataclasses.dataclass(frozen=True, eq=False)
class RecordSource:
    """A dataset of images in TFRecord files, which are not loaded into memory."""

    name: str
    files: tuple[Path, ...]  # Records are numbered through the files in this order.
    indexes: tuple[FileIndex, ...]  # One per file.
    image_shape: tuple[int, int, int]  # Height, width and channels of every image.
    # Per channel. The true mean is unknown, so by default values of 0 to 255 map to -1 to 1.
    mean: tuple[float, ...] = (127.5,)
    std: tuple[float, ...] = (127.5,)
    image_key: str = IMAGE
    label_key: str = LABEL
    label_offset: int = 0  # Number of the first class in the files.
    labels: tuple[str, ...] | None = None  # Names of the classes, or None if unknown.
    # The first record that is used, and the one after the last; None for all records.
    part: tuple[int, int] | None = None
    # The records of all files that are left out because they cannot be read, ascending.
    left_out: tuple[int, ...] = ()
    survey: ImageSurvey | None = None  # Of the headers of all images; see `add_survey`.

    @property
    def size(self) -> int:
        """The number of records that are used."""
        if self.part is not None:
            return self.part[1] - self.part[0]
        return sum(index.records for index in self.indexes) - len(self.left_out)

    @functools.cached_property
    def blocks(self) -> Blocks:
        """The blocks of all files, or of the part that is used, without what is left out."""
        parts = [index.offsets for index in self.indexes]
        records = np.concatenate([_count_block_records(index) for index in self.indexes])
        blocks = Blocks(
            file=np.repeat(np.arange(len(parts)), [len(part) - 1 for part in parts]),
            offset=np.concatenate([part[:-1] for part in parts]),
            length=np.concatenate([np.diff(part) for part in parts]),
            records=records,
            first=np.cumsum(records) - records,
            place=np.concatenate([BLOCK_RECORDS * np.arange(len(part) - 1) for part in parts]),
        )
        if self.left_out:
            return _exclude_records(blocks, self.files, self.left_out)
        return blocks if self.part is None else _select_records(blocks, self.files, *self.part)


def load(
    *,
    split: str = "",
    data_dir: str = "",
    input_path: Sequence[str] = (),
    image_key: str = IMAGE,
    label_key: str = LABEL,
    label_offset: int = 0,
    any_size: bool = False,
    max_bad_records: int = 0,
) -> RecordSource:
    """Returns the records of TFRecord files of tf.Example with the features that Model Garden uses.

    `input_path` is a list of uncompressed files or patterns, relative to `data_dir`. `split` must
    be empty, because the files determine what is read. `image_key` is the feature with a PNG or
    JPEG file, `label_key` is the feature with the number of the class, and `label_offset` is the
    number of the first class.

    The image shape is that of the first image; if `any_size` is true, it is 0, 0, 0 if that image
    is not valid. Up to `max_bad_records` records are left out because they cannot be read. Raises
    DataError if a file is missing or damaged, or if a setting does not apply.
    """
    if split:
        raise DataError(
            f"tfrecord: got split {split!r}, expected none: input_path specifies the files",
            field="split",
        )
    files = named_files("tfrecord", data_dir, input_path)
    if not files:
        raise DataError(
            "tfrecord: no files are specified; set input_path, for example to train-*",
            field="input_path",
        )
    indexes, keys = index_files(files), (image_key, label_key)
    left_out: tuple[int, ...] = ()
    if max_bad_records:
        left_out = find_bad_records("tfrecord", files, indexes, keys, max_bad_records)
    source = RecordSource(
        "tfrecord",
        tuple(files),
        tuple(indexes),
        (0, 0, 0) if left_out else first_shape("tfrecord", files, indexes, keys, any_size),
        image_key=image_key,
        label_key=label_key,
        label_offset=label_offset,
        left_out=left_out,
    )
    if not left_out:
        return source
    return dataclasses.replace(source, image_shape=_first_kept_shape(source, any_size))


def first_shape(
    name: str,
    files: Sequence[Path],
    indexes: Sequence[FileIndex],
    keys: tuple[str, str],
    any_size: bool = False,
) -> tuple[int, int, int]:
    """Returns the height, width and channels of the first image.

    `keys` are the features of the image and of the label. If `any_size` is true and the image is
    not valid, returns 0, 0, 0. Raises DataError if there is no record or if the first one does not
    have the features.
    """
    filled = [path for path, index in zip(files, indexes, strict=True) if index.records]
    if not filled:
        raise DataError(
            f"{name}: no records found (files: {len(files)}, such as {files[0]})",
            field="input_path",
        )
    path = filled[0]
    return shape_of_record(f"{path}: record 0 at byte 0", first_record(path), *keys, any_size)


def _first_kept_shape(source: RecordSource, any_size: bool) -> tuple[int, int, int]:
    """Returns the shape of the first image that is not left out; see `first_shape`."""
    blocks = source.blocks
    path, start = source.files[int(blocks.file[0])], int(blocks.offset[0])
    where = f"{path}: record {int(blocks.place[0])} at byte {start}"
    keys = source.image_key, source.label_key
    return shape_of_record(where, record_data(path, start), *keys, any_size)


def _exclude_records(blocks: Blocks, files: Sequence[Path], left_out: Sequence[int]) -> Blocks:
    """Returns the blocks without some records; a block is divided at each of them."""
    numbers = np.array(left_out, np.int64)
    of_block = np.searchsorted(blocks.first, numbers, side="right") - 1
    divided = np.unique(of_block)
    pieces = [
        piece
        for block in divided.tolist()
        for piece in _split_block(blocks, files, block, numbers[of_block == block])
    ]
    names = [field.name for field in dataclasses.fields(blocks)]
    columns = {
        name: np.append(
            np.delete(getattr(blocks, name), divided),
            np.array([piece[name] for piece in pieces], np.int64),
        )
        for name in names
    }
    order = np.lexsort((columns["place"], columns["file"]))
    columns = {name: column[order] for name, column in columns.items()}
    columns["first"] = np.cumsum(columns["records"]) - columns["records"]
    return Blocks(**columns)


def _split_block(
    blocks: Blocks, files: Sequence[Path], block: int, numbers: np.ndarray
) -> list[dict[str, int]]:
    """Returns the parts of a block between the records that are left out."""
    file, place = int(blocks.file[block]), int(blocks.place[block])
    starts = record_starts(files[file], int(blocks.offset[block]))
    edges = [-1, *(numbers - blocks.first[block]).tolist(), int(blocks.records[block])]
    return [
        {
            "file": file,
            "offset": starts[before + 1],
            "length": starts[after] - starts[before + 1],
            "records": after - before - 1,
            "first": 0,
            "place": place + before + 1,
        }
        for before, after in itertools.pairwise(edges)
        if after > before + 1
    ]


def _select_records(blocks: Blocks, files: Sequence[Path], start: int, stop: int) -> Blocks:
    """Returns the blocks of the records from `start` to `stop`, exclusive."""
    kept = np.flatnonzero((blocks.first < stop) & (blocks.first + blocks.records > start))
    columns = {f.name: getattr(blocks, f.name)[kept] for f in dataclasses.fields(blocks)}
    skipped = start - int(columns["first"][0])
    if skipped:
        path = files[int(columns["file"][0])]
        end = int(columns["offset"][0] + columns["length"][0])
        columns["offset"][0] = record_starts(path, int(columns["offset"][0]))[skipped]
        columns["length"][0] = end - columns["offset"][0]
        columns["records"][0] -= skipped
        columns["place"][0] += skipped
    columns["records"][-1] -= int(columns["records"].sum()) - (stop - start)
    columns["first"] = np.cumsum(columns["records"]) - columns["records"]
    return Blocks(**columns)


def _count_block_records(index: FileIndex) -> np.ndarray:
    firsts = BLOCK_RECORDS * np.arange(len(index.offsets) - 1)
    return np.minimum(BLOCK_RECORDS, index.records - firsts)


def shape_of_record(
    where: str, record: bytes, image: str, label: str, any_size: bool
) -> tuple[int, int, int]:
    """Returns the height, width and channels of the image in a serialized tf.Example.

    `where` is the name of the record in messages. `image` and `label` are the features of the
    image and of the label. If `any_size` is true and the image is not valid, returns 0, 0, 0.
    Raises DataError if the record does not have the features.
    """
    try:
        features = features_of(record)
    except ValueError:
        raise _mismatch_error(where, "data that is not a tf.Example", image, label) from None
    if not {image, label} <= set(features):
        got = f"features {', '.join(sorted(features)) or '(none)'}"
        raise _mismatch_error(where, got, image, label)
    problem = example_problem(record, {label: "int64"})
    if problem:
        raise DataError(f"{where}: {problem}", field="input_path")
    try:
        encoded = bytes_of(features[image])
    except ValueError as error:
        raise _mismatch_error(where, f"{image} with {error}", image, label) from None
    try:
        return image_shape(encoded)
    except ValueError as error:
        if any_size:
            return 0, 0, 0
        raise _mismatch_error(where, f"{image} with {error}", image, label) from None


def _mismatch_error(where: str, got: str, image: str, label: str) -> DataError:
    return DataError(
        f"{where}: got {got}, expected a tf.Example with {image} (a PNG or JPEG image) and {label}",
        field="input_path",
    )
