"""Images in TFRecord files as Model Garden has them; numpy only, to tell a bad file early."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from orbit_runner.data.files import named_files
from orbit_runner.data.tfrecord.cache import index_files
from orbit_runner.data.tfrecord.example import bytes_of, features_of, image_shape
from orbit_runner.data.tfrecord.framing import BLOCK_RECORDS, FileIndex, first_record
from orbit_runner.errors import DataError

IMAGE, LABEL = "image/encoded", "image/class/label"


@dataclasses.dataclass(frozen=True, eq=False)
class Blocks:
    """The blocks of all files, in stored order: what is read from one file at once.

    Attributes:
        file: Number of the file, int64 [k].
        offset: First byte in it, int64 [k].
        length: Bytes, int64 [k].
        records: Records, int64 [k], at least 1.
        first: Number of the first record, counted through all files, int64 [k].
    """

    file: np.ndarray
    offset: np.ndarray
    length: np.ndarray
    records: np.ndarray
    first: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class RecordSource:
    """A set of images that stays in its files.

    Attributes:
        name: What messages call it.
        files: The files; records are numbered through them in this order.
        indexes: Where the records lie, one a file.
        image_shape: Height, width and channels of every image.
        mean: What to subtract from each channel. Nobody knows the mean of these images, so this
            and `std` map bytes to -1 to 1.
        std: What to divide each channel by.
    """

    name: str
    files: tuple[Path, ...]
    indexes: tuple[FileIndex, ...]
    image_shape: tuple[int, int, int]
    mean: tuple[float, ...] = (127.5,)
    std: tuple[float, ...] = (127.5,)

    @property
    def size(self) -> int:
        """The number of records."""
        return sum(index.records for index in self.indexes)

    @functools.cached_property
    def blocks(self) -> Blocks:
        """The blocks of all files."""
        parts = [index.offsets for index in self.indexes]
        records = np.concatenate([_block_records(index) for index in self.indexes])
        return Blocks(
            file=np.repeat(np.arange(len(parts)), [len(part) - 1 for part in parts]),
            offset=np.concatenate([part[:-1] for part in parts]),
            length=np.concatenate([np.diff(part) for part in parts]),
            records=records,
            first=np.cumsum(records) - records,
        )


def load(*, split: str = "", data_dir: str = "", input_path: Sequence[str] = ()) -> RecordSource:
    """Finds the records of TFRecord files of tf.Example with the features of Model Garden.

    Args:
        split: Must be empty, for the files say what they hold.
        data_dir: Where relative names are looked up.
        input_path: The files, or patterns; not compressed. `image/encoded` is a PNG or a JPEG file,
            all of one size; `image/class/label` counts from 0.

    Returns:
        The records, with the size of the first image.

    Raises:
        DataError: A file is missing or mangled, or a setting does not apply.
    """
    if split:
        raise DataError(
            f"tfrecord: got split {split!r}, expected none: input_path names the files",
            field="split",
        )
    files = named_files("tfrecord", data_dir, input_path)
    if not files:
        raise DataError(
            "tfrecord: no files are named; such as input_path: train-*", field="input_path"
        )
    indexes = index_files(files)
    filled = [path for path, index in zip(files, indexes, strict=True) if index.records]
    if not filled:
        raise DataError(f"tfrecord: got no record in {len(files)} files", field="input_path")
    return RecordSource("tfrecord", tuple(files), tuple(indexes), _shape(filled[0]))


def _block_records(index: FileIndex) -> np.ndarray:
    firsts = BLOCK_RECORDS * np.arange(len(index.offsets) - 1)
    return np.minimum(BLOCK_RECORDS, index.records - firsts)


def _shape(path: Path) -> tuple[int, int, int]:
    try:
        features = features_of(first_record(path))
    except ValueError:
        raise _unlike(path, "no tf.Example") from None
    if not {IMAGE, LABEL} <= set(features):
        raise _unlike(path, f"features {', '.join(sorted(features)) or '(none)'}")
    try:
        return image_shape(bytes_of(features[IMAGE]))
    except ValueError as error:
        raise _unlike(path, f"{IMAGE} with {error}") from None


def _unlike(path: Path, got: str) -> DataError:
    return DataError(
        f"{path}: record 0: got {got}, expected a tf.Example with {IMAGE}, a PNG or JPEG file, and "
        f"{LABEL}",
        field="input_path",
    )
