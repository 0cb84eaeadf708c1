"""Writes small synthetic records in the formats of Model Garden's input pipelines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.official_cases import LENGTH, VOCABULARY


def write_all(folder: Path) -> None:
    """Writes all datasets to a directory."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", 512), ("validation", 512)):
        _write(folder / f"images-{split}.tfrecord", _images(count))
        _write(folder / f"sentences-{split}.tfrecord", _sentences(count))
        _write(folder / f"boxes-{split}.tfrecord", _boxes(64))
    (folder / "boxes.json").write_text(json.dumps(_annotations(64)), encoding="utf-8")


def _write(path: Path, examples: Iterator[dict[str, Any]]) -> None:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for features in examples:
            made = {name: _feature(value) for name, value in features.items()}
            example = tf.train.Example(features=tf.train.Features(feature=made))
            writer.write(example.SerializeToString())


def _feature(value: Any) -> tf.train.Feature:
    if isinstance(value, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    values = np.atleast_1d(value)
    if values.dtype.kind == "f":
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def _jpeg(label: int, size: int, random: np.random.Generator) -> bytes:
    noise = random.normal(90 + 15 * label, 40, (size, size, 3))
    return tf.io.encode_jpeg(np.clip(noise, 0, 255).astype(np.uint8)).numpy()


def _images(count: int) -> Iterator[dict[str, Any]]:
    random = np.random.default_rng(1)
    for number in range(count):
        label = number % 10
        yield {"image/encoded": _jpeg(label, 36, random), "image/class/label": label}


def _sentences(count: int) -> Iterator[dict[str, Any]]:
    random = np.random.default_rng(1)
    for number in range(count):
        yield {
            "input_ids": random.integers(1, VOCABULARY, LENGTH),
            "input_mask": np.ones(LENGTH, np.int64),
            "segment_ids": np.zeros(LENGTH, np.int64),
            "label_ids": number % 2,
        }


def _boxes(count: int) -> Iterator[dict[str, Any]]:
    random = np.random.default_rng(1)
    for number in range(count):
        image = {"image/encoded": _jpeg(1, 128, random), "image/source_id": str(number).encode()}
        corners = {
            f"image/object/bbox/{name}": np.array([value, value + 0.1], np.float32)
            for name, value in (("xmin", 0.1), ("ymin", 0.2), ("xmax", 0.5), ("ymax", 0.6))
        }
        yield {
            **image,
            **corners,
            "image/height": 128,
            "image/width": 128,
            "image/object/class/label": [1, 2],
            "image/object/is_crowd": [0, 0],
            "image/object/area": np.array([2000.0, 2000.0], np.float32),
        }


def _annotations(count: int) -> dict[str, Any]:
    boxes = [
        {
            "id": 2 * number + place + 1,
            "image_id": number,
            "category_id": place + 1,
            "bbox": [12.8, 25.6, 51.2, 51.2],
            "area": 2621.0,
            "iscrowd": 0,
        }
        for number in range(count)
        for place in range(2)
    ]
    return {
        "images": [{"id": number} for number in range(count)],
        "categories": [{"id": 1}, {"id": 2}],
        "annotations": boxes,
    }
