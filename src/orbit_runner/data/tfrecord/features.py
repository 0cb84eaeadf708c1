"""The features of tf.Example records as arrays, read by index. Does not import TensorFlow."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from orbit_runner.data.array_record.files import ArrayRecordFiles
from orbit_runner.data.tfrecord.example import features_of, iterate_fields, read_varint
from orbit_runner.data.tfrecord.framing import record_data
from orbit_runner.data.tfrecord.index_cache import record_offsets
from orbit_runner.errors import DataError

ARRAY_RECORD = ".array_record"


class ExampleFiles:
    """The records of TFRecord or ArrayRecord files; an index returns the features of one.

    Args:
        paths: The files. Names of ArrayRecord files contain `.array_record`.
        shapes: The shapes of features. By default, a single value is a scalar, and several are
            [n].

    Raises:
        DataError: A file cannot be read, or is damaged.
    """

    def __init__(self, paths: Sequence[Path], shapes: Mapping[str, Sequence[int]]) -> None:
        self.paths = tuple(paths)
        self._shapes = shapes
        are_indexed = {ARRAY_RECORD in path.name for path in paths}
        if len(are_indexed) > 1:
            raise DataError(
                "got TFRecord and ArrayRecord files", field="input_path", code="bad-data"
            )
        self._files = ArrayRecordFiles(paths) if True in are_indexed else None
        self._offsets = [] if self._files else record_offsets(paths)
        counts = self._files.counts if self._files else [len(o) - 1 for o in self._offsets]
        self.parts = tuple(zip(map(str, paths), map(int, counts), strict=True))
        self._ends = np.cumsum(counts)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        file = int(np.searchsorted(self._ends, index, side="right"))
        row = index - (int(self._ends[file - 1]) if file else 0)
        name = f"{self.paths[file]}: record {row}"
        try:
            features = features_of(self._record(file, row))
            return {key: self._shaped(key, values_of(value)) for key, value in features.items()}
        except ValueError as error:
            reason = str(error) if "feature" in str(error) else "is not a tf.Example"
            raise DataError(f"{name}: {reason}", field="input_path", code="bad-record") from None

    def _record(self, file: int, row: int) -> bytes:
        if self._files is not None:
            return self._files.read(file, [row])[0]
        return record_data(self.paths[file], int(self._offsets[file][row]))

    def _shaped(self, name: str, values: np.ndarray) -> np.ndarray:
        if name not in self._shapes:
            return values[0] if len(values) == 1 else values
        shape = tuple(self._shapes[name])
        if values.size != np.prod(shape):
            raise ValueError(
                f"feature {name}: got {values.size} values, expected the shape {[*shape]}"
            )
        return values.reshape(shape)


def values_of(feature: bytes) -> np.ndarray:
    """Returns the values of a serialized `tf.train.Feature`: [n] of bytes, float32 or int64.

    Raises ValueError if it has no values, or is damaged.
    """
    for content in iterate_fields(feature, 1):
        texts = np.empty(sum(1 for _ in iterate_fields(content, 1)), object)
        texts[:] = list(iterate_fields(content, 1))
        return texts
    for content in iterate_fields(feature, 2):
        return np.array(_read_numbers(content, 5), np.float32)
    for content in iterate_fields(feature, 3):
        return np.array(_read_numbers(content, 0), np.int64)
    raise ValueError("a feature has no values")


def _read_numbers(content: bytes, kind: int) -> list[float]:
    """Returns the numbers of a list: floats of `kind` 5, integers of `kind` 0, packed or not."""
    numbers: list[float] = []
    place = 0
    while place < len(content):
        tag, place = read_varint(content, place)
        end = place + 1
        if tag & 7 == 2:
            size, place = read_varint(content, place)
            end = place + size
        while place < end:
            if kind == 5:
                numbers.append(struct.unpack_from("<f", content, place)[0])
                place += 4
            else:
                value, place = read_varint(content, place)
                numbers.append(value - (value >> 63 << 64))
    return numbers
