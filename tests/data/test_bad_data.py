"""Malformed data files: one message with the name of the file, and no traceback."""

import io
import json
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from orbit_runner.data import tfds
from orbit_runner.data.files import named_files
from orbit_runner.data.images.dataset import ImageArrays
from orbit_runner.data.images.headers import image_shape
from orbit_runner.data.source import ArraySource
from orbit_runner.datasets import movielens
from orbit_runner.tasks.image_classification.data_config import ImageDataConfig
from orbit_runner.tasks.image_classification.sources import load_source
from tests.support.problems import raises
from tests.support.tfds import IMAGE, class_label, features_json

INFO = {
    "name": "some",
    "version": "1.0.0",
    "fileFormat": "tfrecord",
    "splits": [{"name": "train", "shardLengths": ["1"]}],
}
FEATURES = features_json({"image": IMAGE, "label": class_label(2)})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("dataset_info.json", b"[" * 100_000),
        ("features.json", b'{"featuresDict": null}'),
        ("features.json", b"\xff"),
    ],
)
def test_malformed_tfds_description_is_rejected_with_its_path(name, content, tmp_path):
    folder = tmp_path / "some" / "1.0.0"
    folder.mkdir(parents=True)
    (folder / "features.json").write_text(FEATURES)
    (folder / "dataset_info.json").write_text(json.dumps(INFO))
    (folder / name).write_bytes(content)
    with raises("damaged-file") as caught:
        tfds.load(tfds_name="some", tfds_data_dir=str(tmp_path))
    assert len(str(caught.value)) < 500


def test_ratings_file_without_newlines_is_not_read_entirely(tmp_path):
    with (tmp_path / "u.data").open("wb") as file:
        file.truncate(2**36)
    with raises("bad-record"):
        movielens.load(data_dir=str(tmp_path))


def test_synthetic_data_larger_than_memory_is_rejected():
    config = ImageDataConfig(source="synthetic", global_batch_size=1)
    with raises("out-of-memory") as caught:
        load_source(config, [10**6, 10**6, 3])
    assert caught.value.field == "source"


@pytest.mark.parametrize("size", [(60_000, 60_000), (0, 8)])
def test_image_header_with_impossible_size_is_rejected(size):
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "PNG")
    content = file.getvalue()
    header = struct.pack(">4sIIBBBBB", b"IHDR", *size, 8, 2, 0, 0, 0)
    checksum = struct.pack(">I", zlib.crc32(header))
    with pytest.raises(ValueError, match="too large"):
        image_shape(content[:12] + header + checksum + content[33:])


_IMAGES = np.zeros((3, 2, 2, 1), np.uint8)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"image": _IMAGES}, r"got labels none, expected `label` \[n\] of integers"),
        ({"image": _IMAGES, "label": np.zeros((3, 2), np.int32)}, r"got labels int32 \[3, 2\]"),
        ({"image": _IMAGES, "label": np.zeros(3, np.float32)}, r"got labels float32 \[3\]"),
        ({"image": _IMAGES, "label": np.array([0, 1, -1])}, "got label -1 in example 2"),
        ({"image": _IMAGES > 0, "label": np.arange(3)}, "got images of bool, expected numbers"),
        ({"image": np.full((3, 2, 2, 1), [[[[1.0]]], [[[np.nan]]], [[[np.inf]]]]),
          "label": np.arange(3)}, "pixels that are not finite in example 1"),
    ],
)  # fmt: skip
def test_invalid_labels_or_pixels_are_rejected(arrays, message):
    with raises("bad-data"):
        ImageArrays("made", arrays).check()


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("nowhere")])
def test_pattern_ignores_pipes_directories_and_broken_links(make, tmp_path):
    make(tmp_path / "train-0")
    with raises("missing-file"):
        named_files("tfrecord", str(tmp_path), ["train-*"])


@pytest.mark.parametrize(
    "arrays", [{}, {"a": np.zeros(0)}, {"a": np.zeros(2), "b": {"c": np.zeros(3)}}]
)
def test_empty_or_differently_sized_arrays_are_rejected(arrays):
    with raises("bad-data"):
        ArraySource("s", arrays)
