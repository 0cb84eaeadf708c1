"""A small table, written as TensorFlow Datasets prepares it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from tests.support.array_records import write_array_file
from tests.support.tfds import TEXT, class_label, features_dict, features_json, scalar
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
    place, first, said = folder / "rows" / "1.0.0", 0, []
    place.mkdir(parents=True)
    write = write_file if file_format == "tfrecord" else write_array_file
    for split, sizes in splits.items():
        for shard, size in enumerate(sizes):
            rows = [
                make_row(n) | dict((change or {}).get(n, {})) for n in range(first, first + size)
            ]
            name = f"rows-{split}.{file_format}-{shard:05}-of-{len(sizes):05}"
            write(place / name, [_example(row) for row in rows])
            first += size
        said.append({"name": split, "shardLengths": [str(size) for size in sizes]})
    info = {"name": "rows", "version": "1.0.0", "fileFormat": file_format, "splits": said}
    (place / "dataset_info.json").write_text(json.dumps(info))
    (place / "features.json").write_text(features_json(FEATURES))
    (place / "y.labels.txt").write_text("\n".join(CLASSES) + "\n")
    return place


def _example(row: Mapping[str, Any]) -> bytes:
    features = {name: _feature(value) for name, value in row.items() if value is not None}
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def _feature(value: Any) -> tf.train.Feature:
    values = value if isinstance(value, list) else [value]
    if isinstance(values[0], str):
        encoded = [text.encode() for text in values]
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=encoded))
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
