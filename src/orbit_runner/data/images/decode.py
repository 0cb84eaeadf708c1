"""Decodes a part of an image file, without the rest of it where the format allows."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

# From height and width, int32 [2], to first row, first column, height and width, int32 [4].
Window = Callable[[tf.Tensor], tf.Tensor]


def decode_window(encoded: tf.Tensor, channels: int, window: Window | None = None) -> tf.Tensor:
    """Decodes a part of a JPEG, PNG, BMP or GIF file; of a JPEG, little more than the part.

    Args:
        encoded: The file, string scalar.
        channels: 1 or 3.
        window: Says which part, from the size of the image; all of it where None.

    Returns:
        uint8 [height, width, channels].
    """
    image = tf.cond(
        tf.io.is_jpeg(encoded),
        lambda: _jpeg(encoded, channels, window),
        lambda: crop(_other(encoded, channels), window),
    )
    return tf.ensure_shape(image, [None, None, channels])


def crop(image: tf.Tensor, window: Window | None) -> tf.Tensor:
    """Cuts a part out of an image.

    Args:
        image: [height, width, channels].
        window: Says which part, from the size of the image; all of it where None.

    Returns:
        [rows, columns, channels], the dtype of the image.
    """
    if window is None:
        return image
    part = window(tf.shape(image)[:2])
    return image[part[0] : part[0] + part[2], part[1] : part[1] + part[3]]


def _jpeg(encoded: tf.Tensor, channels: int, window: Window | None) -> tf.Tensor:
    if window is None:
        return tf.io.decode_jpeg(encoded, channels=channels)
    part = window(tf.image.extract_jpeg_shape(encoded)[:2])
    return tf.image.decode_and_crop_jpeg(encoded, part, channels=channels)


def _other(encoded: tf.Tensor, channels: int) -> tf.Tensor:
    image = tf.io.decode_image(encoded, channels=channels, expand_animations=False)
    return tf.ensure_shape(image, [None, None, channels])


def resize(image: tf.Tensor, size: tuple[int, int], method: str) -> tf.Tensor:
    """Brings an image to a size.

    Args:
        image: [height, width, channels], any number type.
        size: Height and width.
        method: A name in `tf.image.ResizeMethod`, in lower case.

    Returns:
        float32 [*size, channels], in the unit of the image.
    """
    return tf.cast(tf.image.resize(image, size, method=method), tf.float32)


def as_pixels(image: tf.Tensor) -> tf.Tensor:
    """Rounds an image to whole pixel values: a quarter of the bytes to keep and to hand over.

    Args:
        image: float32, 0 to 255, any shape.

    Returns:
        uint8, the same shape.
    """
    return tf.saturate_cast(tf.round(image), tf.uint8)
