"""Decodes, crops and resizes images, in plain TensorFlow ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from orbit_runner.data.order.keyed_random import random_bits

# From height and width, int32 [2], to first row, first column, height and width, int32 [4].
Window = Callable[[tf.Tensor], tf.Tensor]
_PNG = b"\x89PNG\r\n\x1a\n"  # The first bytes of a PNG file.
_ASPECTS = (3 / 4, 4 / 3)
_ATTEMPTS = 10


def decode_window(encoded: tf.Tensor, channels: int, window: Window | None = None) -> tf.Tensor:
    """Returns a part of the image in a file: uint8 [height, width, channels].

    `encoded` is the contents of a JPEG, PNG, BMP, GIF or WebP file, string scalar. `channels` is 1,
    3 or 4; a file without transparency is opaque. `window` selects the part; None for the whole
    image. For a JPEG file, little more than the part is decoded.
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
        return _make_opaque(_decode_jpeg(encoded, 3, window))
    if window is None:
        return tf.io.decode_jpeg(encoded, channels=channels)
    part = window(tf.image.extract_jpeg_shape(encoded)[:2])
    return tf.image.decode_and_crop_jpeg(encoded, part, channels=channels)


def _decode_other(encoded: tf.Tensor, channels: int) -> tf.Tensor:
    def decode(channels: int) -> tf.Tensor:
        image = tf.io.decode_image(encoded, channels=channels, expand_animations=False)
        return tf.ensure_shape(image, [None, None, channels])

    def convert_color() -> tf.Tensor:
        return tf.image.rgb_to_grayscale(decode(3)) if channels == 1 else _make_opaque(decode(3))

    if channels == 3:
        return decode(3)
    # Of the other formats, TensorFlow decodes only color.
    is_png = tf.strings.substr(encoded, 0, len(_PNG)) == _PNG
    return tf.cond(is_png, lambda: decode(channels), convert_color)


def _make_opaque(color: tf.Tensor) -> tf.Tensor:
    alpha = tf.fill([*tf.unstack(tf.shape(color)[:2]), 1], tf.constant(255, tf.uint8))
    return tf.concat([color, alpha], -1)


def resize(image: tf.Tensor, size: tuple[int, int], method: str) -> tf.Tensor:
    """Returns a resized image: float32 [*size, channels], in the unit of the input image.

    `image` is [height, width, channels] of any numeric dtype, and `size` is (height, width).
    `method` is a name in `tf.image.ResizeMethod`, in lower case.
    """
    return tf.cast(tf.image.resize(image, size, method=method), tf.float32)


def interval_mask(first: tf.Tensor, size: tf.Tensor, length: int) -> tf.Tensor:
    """Returns which pixels of a row are in an interval, bool [length], or of rows [b, length]."""
    places = tf.range(length, dtype=tf.float32)
    return (places >= first) & (places < first + size)


def round_to_uint8(image: tf.Tensor) -> tf.Tensor:
    """Returns a float32 image (0 to 255, any shape) rounded to uint8.

    This takes a quarter of the memory.
    """
    return tf.saturate_cast(tf.round(image), tf.uint8)


def convert_channels(image: tf.Tensor, channels: int) -> tf.Tensor:
    """Returns an image [height, width, 1 or 3] as grayscale (1 channel) or RGB (3 channels)."""
    if image.shape[2] == channels:
        return image
    turn = tf.image.grayscale_to_rgb if channels == 3 else tf.image.rgb_to_grayscale
    return turn(image)


def central_window(size: tf.Tensor, fraction: float) -> tf.Tensor:
    """Returns the square in the center of an image.

    The result is first row, first column, height and width, int32 [4]. `size` is height and width,
    int32 [2]. `fraction` is the side of the square as a share of the image's shorter side.

    This is the evaluation of Krizhevsky et al., ImageNet Classification with Deep Convolutional
    Neural Networks, 2012, with 0.875 = 224/256 as in Model Garden.
    """
    sides = tf.cast(size, tf.float32)
    side = fraction * tf.reduce_min(sides)
    first = tf.cast((sides - side) / 2, tf.int32)
    length = tf.maximum(tf.cast(side, tf.int32), 1)
    return tf.concat([first, length[tf.newaxis], length[tf.newaxis]], axis=0)


def inception_window(
    size: tf.Tensor,
    areas: Sequence[float],
    fraction: float,
    seed: int,
    number: tf.Tensor,
    epoch: tf.Tensor,
) -> tf.Tensor:
    """Returns a window of random area and aspect.

    The result is first row, first column, height and width, int32 [4]. `size` is height and width,
    int32 [2]. `areas` are the smallest and the largest area as shares of the image's area. `number`
    (of the example) and `epoch` are int64 scalars.

    Szegedy et al., Going Deeper with Convolutions, 2015, section 6, use an area of 8 % to 100 % and
    an aspect of 3/4 to 4/3. If ten draws do not fit the image, or the whole image is drawn, returns
    the central window with `fraction`, as in Model Garden.
    """
    bits = random_bits(seed, number, epoch, "incep")
    first, length, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.concat([size, [3]], axis=0),
        tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        seed=tf.bitcast(bits, tf.int32),
        min_object_covered=areas[0],
        aspect_ratio_range=_ASPECTS,
        area_range=areas,
        max_attempts=_ATTEMPTS,
    )
    drawn = tf.concat([first[:2], length[:2]], axis=0)
    return tf.where(tf.reduce_all(length[:2] == size), central_window(size, fraction), drawn)


def decode_for_evaluation(
    encoded: tf.Tensor,
    shape: Sequence[int],
    *,
    center_crop_fraction: float | None = 0.875,
    method: str = "bilinear",
) -> tf.Tensor:
    """Returns the image of a file, center-cropped and resized, with plain TensorFlow ops only.

    `encoded` is a JPEG, PNG, BMP, GIF or WebP file as a string scalar. `shape` is (height, width,
    channels), `model.input_size`. The side of the crop is `center_crop_fraction` of the image's
    shorter side; if None, the whole image is resized. `method` is a name in
    `tf.image.ResizeMethod`, in lower case. Returns uint8 of that shape, the input of the network in
    evaluation.
    """
    fraction = center_crop_fraction
    window = None if fraction is None else lambda size: central_window(size, fraction)
    image = decode_window(encoded, shape[2], window)
    return round_to_uint8(resize(image, (shape[0], shape[1]), method))
