"""Videos in the format of YouTube-8M: quantized vectors per frame, for images and sound."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np


def write_videos(
    path: Path, videos: int, frames: int, sizes: Mapping[str, int], classes: int
) -> str:
    """Writes a TFRecord file of `tf.SequenceExample`s.

    Args:
        path: The file.
        videos: The number of videos.
        frames: The number of frames per video.
        sizes: The length of each feature of a frame; an element is one byte.
        classes: The number of classes. Each video has two successive labels.

    Returns:
        The path as a string.
    """
    import tensorflow as tf

    draw = np.random.default_rng(0)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(videos):
            example = tf.train.SequenceExample()
            context = example.context.feature
            context["id"].bytes_list.value.append(f"video{number}".encode())
            context["labels"].int64_list.value.extend([number % classes, (number + 1) % classes])
            for name, size in sizes.items():
                frame_list = example.feature_lists.feature_list[name]
                for _ in range(frames):
                    vector = draw.integers(0, 256, size).astype(np.uint8)
                    frame_list.feature.add().bytes_list.value.append(vector.tobytes())
            writer.write(example.SerializeToString())
    return str(path)
