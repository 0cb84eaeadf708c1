"""The features of tf.Example records as arrays, read by index. Does not import TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orbit_runner.data.array_record.files import ArrayRecordFiles
from orbit_runner.data.tfrecord.example import features_of, values_of
from orbit_runner.data.tfrecord.framing import index_files, record_data
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
        self._offsets = [] if self._files else [index.offsets for index in index_files(paths)]
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
            return {key: self._shaped(key, _array_of(value)) for key, value in features.items()}
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


def _array_of(feature: Any) -> np.ndarray:
    """Returns the values of a `tf.train.Feature`: [n] of bytes, float32 or int64.

    Raises ValueError if it has no values.
    """
    kind, values = values_of(feature)
    if not kind:
        raise ValueError("a feature has no values")
    if kind != "bytes":
        return np.array(values, np.float32 if kind == "float" else np.int64)
    texts = np.empty(len(values), object)
    texts[:] = values
    return texts
