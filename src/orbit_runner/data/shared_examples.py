"""Finds validation examples that are also training examples. Does not import TensorFlow.

Each example gets a key, and examples with equal keys are the same: files and records by where they
are, and by their contents where these are quick to read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from orbit_runner.data.arrays import Gathered, bytes_keys, is_text, leaves, stored_rows
from orbit_runner.data.dataset import Dataset
from orbit_runner.data.images.stored import StoredImages, end_bytes
from orbit_runner.data.source import ArraySource
from orbit_runner.errors import DataError

# Contents are compared up to these limits, which take about a second. Beyond them, only examples
# that are in the same place are found.
_MOST_BYTES = 2**28
_MOST_ROWS = 10**6
_MOST_RECORDS = 20_000

Describe = Callable[[int], str]


@dataclasses.dataclass(frozen=True)
class SharedExamples:
    """Validation examples that are also training examples.

    Attributes:
        count: Their number.
        size: The number of validation examples.
        unit: What an example is, in the plural: `images`.
        places: Where one of them is in the validation data and in the training data; "" if unknown.
        advice: How to separate the sections.
        by_features: Whether only the features were compared, but not the labels.
    """

    count: int
    size: int
    unit: str
    places: tuple[str, str] = ("", "")
    advice: str = ""
    by_features: bool = False

    def __str__(self) -> str:
        """Returns the sentence that a run and an inspection show."""
        mine, other = self.places
        such = f", such as {mine}" if mine else ""
        if other and other != mine:
            such += f", which is {other}"
        advice = f"; {self.advice}" if self.advice and self.count == self.size else ""
        are = "have the features of" if self.by_features else "are also"
        return (
            f"{self.count:,} of {self.size:,} validation {self.unit} {are} training "
            f"{self.unit}{such}; the results of evaluations may be better than on new data{advice}"
        )


def compare_keys(
    train: np.ndarray,
    validation: np.ndarray,
    unit: str,
    describe: tuple[Describe, Describe] = (lambda row: "", lambda row: ""),
    advice: str = "",
    *,
    by_features: bool = False,
) -> SharedExamples | None:
    """Returns the examples whose keys are among those of the training data, or None.

    Args:
        train: The keys of the training examples, [n].
        validation: The keys of the validation examples, [m].
        unit: What an example is, in the plural.
        describe: Functions that return the place of a training and of a validation example.
        advice: How to separate the sections.
        by_features: Whether the keys are those of the features, without the labels.
    """
    shared = np.flatnonzero(np.isin(validation, train))
    if not len(shared):
        return None
    row = int(shared[0])
    other = int((train == validation[row]).argmax())
    places = (describe[1](row), describe[0](other))
    return SharedExamples(len(shared), len(validation), unit, places, advice, by_features)


def shared_arrays(
    train: ArraySource,
    validation: ArraySource,
    labels: Sequence[str],
    *,
    unit: str = "examples",
    advice: str = "",
    excluded: np.ndarray | None = None,
) -> SharedExamples | None:
    """Returns the examples in memory with equal features. `labels` names the other arrays."""
    keys = [_array_keys(source, labels) for source in (train, validation)]
    left, right = keys
    if left is None or right is None:
        if train is not validation:
            return None  # Too large to compare.
        left = right = np.arange(train.size)
    return compare_keys(
        _without(left, excluded),
        right,
        unit,
        (lambda row: "", validation.location),
        advice,
        by_features=unit != "images",
    )


def shared_stored(
    train: Dataset | None,
    validation: Dataset | None,
    advice: str = "",
    excluded: np.ndarray | None = None,
    labels: Sequence[str] = ("label",),
    unit: str = "images",
) -> SharedExamples | None:
    """Returns the examples of the validation data that are training examples, or None.

    They are images in files or arrays; `labels` names the arrays that are not compared.
    """
    if isinstance(train, ArraySource) and isinstance(validation, ArraySource):
        return shared_arrays(train, validation, labels, unit=unit, advice=advice, excluded=excluded)
    if isinstance(train, StoredImages) and isinstance(validation, StoredImages):
        keys = _stored_keys(train, validation)
        names = (train.location, validation.location)
        return compare_keys(_without(keys[0], excluded), keys[1], "images", names, advice)
    return None


def shared_files(
    train: Sequence[str], validation: Sequence[str], advice: str = ""
) -> SharedExamples | None:
    """Returns the files that both sections read, also under different paths."""
    keys = [np.array([_file_id(path) for path in paths]) for paths in (train, validation)]
    if not all(map(len, keys)):
        return None
    paths = (train.__getitem__, validation.__getitem__)
    return compare_keys(keys[0], keys[1], "files", paths, advice)


def _without(keys: np.ndarray, excluded: np.ndarray | None) -> np.ndarray:
    return keys if excluded is None or not len(excluded) else np.delete(keys, excluded)


def _array_keys(source: ArraySource, labels: Sequence[str]) -> np.ndarray | None:
    """Returns a key of the features of each example, or None if there are too many."""
    features = {name: tree for name, tree in source.arrays.items() if name not in labels}
    arrays = dict(leaves(features))
    size = sum(array.nbytes for array in arrays.values())
    if source.size > _MOST_ROWS or size > _MOST_BYTES or not arrays:
        return None
    keys = np.zeros(source.size, np.uint64)
    for path in sorted(arrays):
        own = _row_keys(arrays[path])
        keys = bytes_keys(pair.tobytes() for pair in np.stack([keys, own], axis=1))
    return keys


def _row_keys(array: np.ndarray | Gathered) -> np.ndarray:
    """Returns a key of each row."""
    keys = bytes_keys(_row_bytes(stored_rows(array)))
    return array.expand(keys) if isinstance(array, Gathered) else keys


def _row_bytes(rows: np.ndarray) -> Iterable[bytes]:
    if is_text(rows):  # Their width in bytes depends on the longest string.
        return (repr(row).encode("utf-8", "surrogatepass") for row in rows.tolist())
    return (row.tobytes() for row in np.ascontiguousarray(rows))


def _file_id(path: str | Path) -> str:
    """Returns what identifies a file, whatever its path; the path if it cannot be read."""
    try:
        status = os.stat(path)
    except OSError:
        return os.path.abspath(path)
    return f"{status.st_dev}:{status.st_ino}"


def _stored_keys(train: StoredImages, validation: StoredImages) -> tuple[np.ndarray, np.ndarray]:
    """Returns the keys of images: of their contents if there are few, else of their places."""
    sources = (train, validation)
    size = sum(os.path.getsize(path) for source in sources for path in source.files)
    if train.size + validation.size <= _MOST_RECORDS and size <= _MOST_BYTES:
        with contextlib.suppress(DataError, OSError):  # Damage is reported when a record is read.
            return _content_keys(train), _content_keys(validation)
    keys = [source.place_keys() for source in sources]
    return keys[0], keys[1]


def _content_keys(source: StoredImages) -> np.ndarray:
    return bytes_keys(map(end_bytes, source.header_sources(range(source.size))))
