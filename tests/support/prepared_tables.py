"""A small table, written as TensorFlow Datasets prepares it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tests.support.array_records import write_array_file
from tests.support.records import example_of
from tests.support.tfds import TEXT, class_label, features_dict, scalar, write_prepared
from tests.support.tfrecords import write_file

CLASSES = ("small", "big")
FEATURES: dict[str, Any] = {
    "size": scalar("float32"),
    "age": scalar("int64"),
    "old": scalar("bool"),
    "color": TEXT,
    "pair": scalar("float32", 2),
    "y": class_label(2),
    "inner": features_dict({"n": scalar("int32")}),
}


def make_row(number: int) -> dict[str, Any]:
    """Returns the values of a row, by the names of the features."""
    return {
        "size": number / 8 - 3,
        "age": 40 - number,
        "old": int(number % 3 == 0),
        "color": ("rot", "grün")[number % 2],
        "pair": [1.0, 2.0],
        "y": -1 if number == 4 else int(number % 8 > 3),
        "inner/n": -number,
    }


def write_table(
    folder: Path,
    splits: Mapping[str, Sequence[int]],
    file_format: str = "tfrecord",
    change: Mapping[int, Mapping[str, Any]] | None = None,
) -> Path:
    """Writes the dataset `rows` with numbered rows, and returns the directory of its version."""
    numbers = itertools.count()
    records = {}
    for split, sizes in splits.items():
        records[split] = [
            [_example(make_row(n) | dict((change or {}).get(n, {}))) for n in islice(numbers, size)]
            for size in sizes
        ]
    write = write_file if file_format == "tfrecord" else write_array_file
    return write_prepared(folder, "rows", records, FEATURES, {"y": CLASSES}, write, file_format)


def _example(row: Mapping[str, Any]) -> bytes:
    features = {}
    for name, value in row.items():
        values = value if isinstance(value, list) else [value]
        if value is not None:
            features[name] = [v.encode() if isinstance(v, str) else v for v in values]
    return example_of(**features)
