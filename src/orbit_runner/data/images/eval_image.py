"""An image as evaluation sees it, and as a served model has to."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from orbit_runner.data.images.crops import central_window
from orbit_runner.data.images.decode import Window, as_pixels, crop, decode_window, resize


def decode_for_evaluation(
    encoded: tf.Tensor,
    shape: Sequence[int],
    *,
    center_crop_fraction: float | None = 0.875,
    method: str = "bilinear",
) -> tf.Tensor:
    """Decodes an image file, cuts out its middle and brings it to a size; with plain TF ops only.

    Args:
        encoded: A JPEG, PNG, BMP or GIF file, string scalar.
        shape: Height, width and channels, `model.input_size`.
        center_crop_fraction: Side of the middle as a share of the image's shorter side; None to
            resize the whole image.
        method: How it is resized, a name in `tf.image.ResizeMethod`, in lower case.

    Returns:
        uint8 of that shape: what evaluation feeds the network with.
    """
    window = _central(center_crop_fraction)
    image = decode_window(encoded, shape[2], window)
    return as_pixels(resize(image, (shape[0], shape[1]), method))


def seen_in_evaluation(
    image: tf.Tensor,
    shape: Sequence[int],
    *,
    center_crop_fraction: float | None = 0.875,
    method: str = "bilinear",
) -> tf.Tensor:
    """Does the same to an image that is decoded already.

    Args:
        image: uint8 [height, width, channels].
        shape: Height, width and channels.
        center_crop_fraction: As above.
        method: As above.

    Returns:
        uint8 of that shape.
    """
    part = crop(with_channels(image, shape[2]), _central(center_crop_fraction))
    return as_pixels(resize(part, (shape[0], shape[1]), method))


def with_channels(image: tf.Tensor, channels: int) -> tf.Tensor:
    """Turns grey into colours, or colours into grey, where that is asked for.

    Args:
        image: [height, width, 1 or 3].
        channels: 1 or 3.

    Returns:
        [height, width, channels], the dtype of the image.
    """
    if image.shape[2] == channels:
        return image
    turn = tf.image.grayscale_to_rgb if channels == 3 else tf.image.rgb_to_grayscale
    return turn(image)


def _central(fraction: float | None) -> Window | None:
    return None if fraction is None else lambda size: central_window(size, fraction)
