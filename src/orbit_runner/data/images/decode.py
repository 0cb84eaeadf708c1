"""Decodes a part of an image file, without decoding the rest if the format allows it."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

# From height and width, int32 [2], to first row, first column, height and width, int32 [4].
Window = Callable[[tf.Tensor], tf.Tensor]


def decode_window(encoded: tf.Tensor, channels: int, window: Window | None = None) -> tf.Tensor:
    """Returns a part of the image in a JPEG, PNG, BMP or GIF file: uint8 [height, width, channels].

    `encoded` is the contents of the file, string scalar. `channels` is 1, 3 or 4; a file without
    transparency is opaque. `window` selects the part; None for the whole image. For a JPEG file,
    little more than the part is decoded.
    """
    image = tf.cond(
        tf.io.is_jpeg(encoded),
        lambda: _decode_jpeg(encoded, channels, window),
        lambda: crop(_decode_other(encoded, channels), window),
    )
    return tf.ensure_shape(image, [None, None, channels])


def crop(image: tf.Tensor, window: Window | None) -> tf.Tensor:
    """Returns the part of an image [height, width, channels] that `window` selects (None: all)."""
    if window is None:
        return image
    part = window(tf.shape(image)[:2])
    return image[part[0] : part[0] + part[2], part[1] : part[1] + part[3]]


def _decode_jpeg(encoded: tf.Tensor, channels: int, window: Window | None) -> tf.Tensor:
    if channels == 4:
        color = _decode_jpeg(encoded, 3, window)
        return tf.concat(
            [color, tf.fill([*tf.unstack(tf.shape(color)[:2]), 1], tf.constant(255, tf.uint8))], -1
        )
    if window is None:
        return tf.io.decode_jpeg(encoded, channels=channels)
    part = window(tf.image.extract_jpeg_shape(encoded)[:2])
    return tf.image.decode_and_crop_jpeg(encoded, part, channels=channels)


def _decode_other(encoded: tf.Tensor, channels: int) -> tf.Tensor:
    image = tf.io.decode_image(encoded, channels=channels, expand_animations=False)
    return tf.ensure_shape(image, [None, None, channels])


def resize(image: tf.Tensor, size: tuple[int, int], method: str) -> tf.Tensor:
    """Returns a resized image: float32 [*size, channels], in the unit of the input image.

    `image` is [height, width, channels] of any numeric dtype, and `size` is (height, width).
    `method` is a name in `tf.image.ResizeMethod`, in lower case.
    """
    return tf.cast(tf.image.resize(image, size, method=method), tf.float32)


def round_to_uint8(image: tf.Tensor) -> tf.Tensor:
    """Returns a float32 image (0 to 255, any shape) rounded to uint8.

    This takes a quarter of the memory.
    """
    return tf.saturate_cast(tf.round(image), tf.uint8)
