"""Small photographs in the formats of real image datasets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from tests.support.array_records import write_array_file
from tests.support.records import example_of
from tests.support.tfds import IMAGE, class_label, write_prepared
from tests.support.tfrecords import example, write_file

GARBAGE = {"empty": b"", "garbage": b"no image at all" * 20}


def photo(number: int, height: int = 0, width: int = 0) -> np.ndarray:
    """Returns a smooth image of some size, uint8."""
    random = np.random.default_rng(number)
    size = height or int(random.integers(20, 40)), width or int(random.integers(20, 40))
    coarse = random.integers(0, 256, (1, 4, 4, 3)).astype(np.float32)
    picture = tf.image.resize(coarse, size, method="bilinear")[0]
    return tf.saturate_cast(tf.round(picture), tf.uint8).numpy()


def jpeg(number: int, height: int = 0, width: int = 0) -> bytes:
    """Returns a photograph as a JPEG file."""
    return tf.io.encode_jpeg(photo(number, height, width), quality=95).numpy()


def png(number: int, height: int = 0, width: int = 0) -> bytes:
    """Returns a photograph as a PNG file."""
    return tf.io.encode_png(photo(number, height, width)).numpy()


def cut_short(number: int = 0) -> bytes:
    """Returns the head of a JPEG file, too little of it for any part of the image."""
    content = jpeg(number, 64, 64)
    return content[: content.index(b"\xff\xda") + 16]


def write_records(
    folder: Path,
    sizes: Sequence[int],
    *,
    classes: int,
    offset: int = 0,
    name: str = "train",
    write: Callable[[Path, Sequence[bytes]], Path] = write_file,
) -> list[Path]:
    """Writes TFRecord files of JPEGs, every fifth a PNG; the label is the record's number.

    With `write=write_array_file`, writes ArrayRecord files.
    """
    paths, first = [], 0
    folder.mkdir(parents=True, exist_ok=True)
    for number, size in enumerate(sizes):
        records = [
            example(jpeg(k) if k % 5 else png(k), k % classes + offset)
            for k in range(first, first + size)
        ]
        paths.append(write(folder / f"{name}-{number:05}-of-{len(sizes):05}", records))
        first += size
    return paths


def write_folder(folder: Path, counts: dict[str, int], first: int = 0) -> list[Path]:
    """Writes class directories with the given numbers of JPEGs and PNGs, half in subdirectories."""
    paths = []
    for name, count in counts.items():
        for number in range(count):
            suffix = (".jpg", ".JPEG", ".png")[number % 3]
            place = folder / name / ("images" if number % 2 else "")
            place.mkdir(parents=True, exist_ok=True)
            path = place / f"{first + number:04}{suffix}"
            make = png if suffix == ".png" else jpeg
            path.write_bytes(make(first + number))
            paths.append(path)
        first += count
    return paths


def write_listed(folder: Path, counts: dict[str, int], name: str = "labels.csv") -> Path:
    """Writes photos in a directory `images`, and a CSV file of path, class, person and part."""
    paths = write_folder(folder / "images", counts)
    lines = ["file,kind,person,part"]
    for number, path in enumerate(sorted(paths, key=lambda path: path.name)):
        kind = path.relative_to(folder / "images").parts[0]
        part = "validation" if number % 4 == 3 else "train"
        lines.append(f"{path.relative_to(folder / 'images')},{kind},p{number % 5},{part}")
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


def write_tfds(
    folder: Path,
    name: str,
    splits: Mapping[str, Sequence[int]],
    labels: Sequence[str],
    file_format: str = "tfrecord",
) -> Path:
    """Writes a dataset as TensorFlow Datasets prepares it; labels are the records' numbers."""
    features = {"image": IMAGE, "label": class_label(len(labels))}
    records = {
        split: [
            [example_of(image=[jpeg(k)], label=[k % len(labels)]) for k in range(end - size, end)]
            for size, end in zip(sizes, itertools.accumulate(sizes), strict=True)
        ]
        for split, sizes in splits.items()
    }
    write = write_file if file_format == "tfrecord" else write_array_file
    return write_prepared(folder, name, records, features, {"label": labels}, write, file_format)
