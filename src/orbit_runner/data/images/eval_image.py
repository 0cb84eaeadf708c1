"""The preprocessing of images for evaluation and for serving."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from orbit_runner.data.images.crops import central_window
from orbit_runner.data.images.decode import Window, crop, decode_window, resize, round_to_uint8


def decode_for_evaluation(
    encoded: tf.Tensor,
    shape: Sequence[int],
    *,
    center_crop_fraction: float | None = 0.875,
    method: str = "bilinear",
) -> tf.Tensor:
    """Returns the image of a file, center-cropped and resized, with plain TensorFlow ops only.

    `encoded` is a JPEG, PNG, BMP or GIF file as a string scalar. `shape` is (height, width,
    channels), `model.input_size`. The side of the crop is `center_crop_fraction` of the image's
    shorter side; if None, the whole image is resized. `method` is a name in
    `tf.image.ResizeMethod`, in lower case. Returns uint8 of that shape, the input of the network in
    evaluation.
    """
    window = _central_crop(center_crop_fraction)
    image = decode_window(encoded, shape[2], window)
    return round_to_uint8(resize(image, (shape[0], shape[1]), method))


def preprocess_for_evaluation(
    image: tf.Tensor,
    shape: Sequence[int],
    *,
    center_crop_fraction: float | None = 0.875,
    method: str = "bilinear",
) -> tf.Tensor:
    """Returns a decoded image (uint8 [height, width, channels]), center-cropped and resized.

    The other arguments and the result are as in `decode_for_evaluation`.
    """
    part = crop(convert_channels(image, shape[2]), _central_crop(center_crop_fraction))
    return round_to_uint8(resize(part, (shape[0], shape[1]), method))


def convert_channels(image: tf.Tensor, channels: int) -> tf.Tensor:
    """Returns an image [height, width, 1 or 3] as grayscale (1 channel) or RGB (3 channels)."""
    if image.shape[2] == channels:
        return image
    turn = tf.image.grayscale_to_rgb if channels == 3 else tf.image.rgb_to_grayscale
    return turn(image)


def _central_crop(fraction: float | None) -> Window | None:
    return None if fraction is None else lambda size: central_window(size, fraction)
