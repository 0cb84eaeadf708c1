"""Tiny image datasets in the record formats of Model Garden's vision parsers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

# Two boxes per image, one large and one small: ymin, xmin, ymax, xmax as fractions of the side.
_BOXES = ((0.1, 0.2, 0.8, 0.9), (0.3, 0.1, 0.5, 0.4))
_COUNT = 4


def noise(number: int, *shape: int) -> np.ndarray:
    """Returns uint8 noise of the given shape, which depends only on `number`."""
    return np.random.default_rng(number).integers(0, 256, shape, np.uint8)


def write_classified_images(path: Path, *, side: int, classes: int) -> str:
    """Writes JPEGs with one label each, in [0, classes), and returns the path."""
    return _write(
        path,
        (
            _example(
                {
                    "image/encoded": [_jpeg(noise(i, side, side, 3))],
                    "image/class/label": [i % classes],
                }
            )
            for i in range(_COUNT)
        ),
    )


def write_boxed_images(path: Path, *, side: int, classes: int) -> str:
    """Writes JPEGs with two boxes each, with masks and classes, and returns the path.

    `classes` includes class 0, the background, so labels start at 1.
    """
    return _write(path, (_boxed_image(i, side, classes) for i in range(_COUNT)))


def write_coco_annotations(path: Path, *, side: int, classes: int) -> str:
    """Writes the boxes of `write_boxed_images` as COCO annotations, and returns the path.

    `classes` includes class 0, the background.
    """
    marks = [
        {"id": 2 * i + k + 1, "image_id": i + 1, "category_id": _label(i, k, classes)}
        | _outline(box, side)
        for i in range(_COUNT)
        for k, box in enumerate(_BOXES)
    ]
    content: dict[str, list[dict[str, Any]]] = {
        "images": [{"id": i + 1, "height": side, "width": side} for i in range(_COUNT)],
        "annotations": marks,
        "categories": [{"id": k, "name": f"class {k}"} for k in range(1, classes)],
    }
    path.write_text(json.dumps(content))
    return str(path)


def write_segmented_images(path: Path, *, height: int, width: int, classes: int) -> str:
    """Writes JPEGs, each with a PNG of pixel classes, and returns the path.

    Classes are in [0, classes).
    """
    return _write(
        path,
        (
            _example(
                {
                    "image/encoded": [_jpeg(noise(i, height, width, 3))],
                    "image/height": [height],
                    "image/width": [width],
                    "image/segmentation/class/encoded": [
                        _png(noise(i, height, width, 1) % classes)
                    ],
                }
            )
            for i in range(_COUNT)
        ),
    )


def write_videos(path: Path, *, frames: int, height: int, width: int, classes: int) -> str:
    """Writes sequences of JPEGs with one label each, in [0, classes), and returns the path."""
    return _write(path, (_video(i, (frames, height, width, 3), classes) for i in range(_COUNT)))


def write_volumes(path: Path, *, side: int, channels: int, classes: int) -> str:
    """Writes cubes of float32 values with one-hot float32 classes, and returns the path.

    Both are stored as raw bytes. Each point has `channels` values.
    """
    one_hot = np.eye(classes, dtype=np.float32)
    return _write(
        path,
        (
            _example(
                {
                    "image/encoded": [
                        (noise(i, side, side, side, channels) / np.float32(255)).tobytes()
                    ],
                    "image/class/label": [one_hot[noise(i, side, side, side) % classes].tobytes()],
                }
            )
            for i in range(_COUNT)
        ),
    )


def _boxed_image(number: int, side: int, classes: int) -> Any:
    ymin, xmin, ymax, xmax = zip(*_BOXES, strict=True)
    return _example(
        {
            "image/encoded": [_jpeg(noise(number, side, side, 3))],
            "image/source_id": [str(number + 1).encode()],
            "image/height": [side],
            "image/width": [side],
            "image/object/bbox/ymin": list(ymin),
            "image/object/bbox/xmin": list(xmin),
            "image/object/bbox/ymax": list(ymax),
            "image/object/bbox/xmax": list(xmax),
            "image/object/class/label": [_label(number, k, classes) for k in range(len(_BOXES))],
            "image/object/area": [_outline(box, side)["area"] for box in _BOXES],
            "image/object/is_crowd": [0] * len(_BOXES),
            "image/object/mask": [_png(_mask(box, side)) for box in _BOXES],
        }
    )


def _label(image: int, box: int, classes: int) -> int:
    return 1 + (image + box) % (classes - 1)


def _mask(box: tuple[float, ...], side: int) -> np.ndarray:
    ymin, xmin, ymax, xmax = (round(part * side) for part in box)
    mask = np.zeros((side, side, 1), np.uint8)
    mask[ymin:ymax, xmin:xmax] = 1
    return mask


def _outline(box: tuple[float, ...], side: int) -> dict[str, Any]:
    ymin, xmin, ymax, xmax = (part * side for part in box)
    height, width = ymax - ymin, xmax - xmin
    return {
        "bbox": [xmin, ymin, width, height],
        "area": height * width,
        "iscrowd": 0,
        "segmentation": [[xmin, ymin, xmax, ymin, xmax, ymax, xmin, ymax]],
    }


def _video(number: int, shape: tuple[int, ...], classes: int) -> Any:
    import tensorflow as tf

    frames = [_feature([_jpeg(image)]) for image in noise(number, *shape)]
    return tf.train.SequenceExample(
        context=tf.train.Features(feature={"clip/label/index": _feature([number % classes])}),
        feature_lists=tf.train.FeatureLists(
            feature_list={"image/encoded": tf.train.FeatureList(feature=frames)}
        ),
    )


def _example(values: dict[str, list[Any]]) -> Any:
    import tensorflow as tf

    features = {name: _feature(value) for name, value in values.items()}
    return tf.train.Example(features=tf.train.Features(feature=features))


def _feature(values: list[Any]) -> Any:
    import tensorflow as tf

    if isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if isinstance(values[0], int):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def _jpeg(image: np.ndarray) -> bytes:
    import tensorflow as tf

    return tf.io.encode_jpeg(image).numpy()


def _png(image: np.ndarray) -> bytes:
    import tensorflow as tf

    return tf.io.encode_png(image).numpy()


def _write(path: Path, examples: Iterable[Any]) -> str:
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for example in examples:
            writer.write(example.SerializeToString())
    return str(path)
