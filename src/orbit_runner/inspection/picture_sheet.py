"""Pictures as PNG: a sheet of them, or one file for each."""

from __future__ import annotations

import math

import numpy as np

from orbit_runner.utils.metrics import summarize_array

_SMALLEST = 48  # Smaller pictures are enlarged by a whole factor.
_SMALLEST_SIDE = 24
_LARGEST_SIDE = 96
_GAP = 4
_BACKGROUND = 255


def picture_sheet(images: np.ndarray, *, columns: int = 8, most: int = 64) -> np.ndarray:
    """Returns pictures side by side in rows, as uint8 [height, width, 3].

    Args:
        images: [n, height, width, channels] with 1, 3 or 4 channels. They are rescaled together,
            so that the smallest value of all becomes 0 and the largest 255.
        columns: The number of pictures in a row.
        most: The number of pictures after which the sheet ends.
    """
    pixels = enlarge_images(to_rgb(images[:most]))
    count, height, width, _ = pixels.shape
    columns = min(columns, count)
    cell = height + _GAP, width + _GAP
    rows = math.ceil(count / columns)
    sheet = np.full((rows * cell[0] + _GAP, columns * cell[1] + _GAP, 3), _BACKGROUND, np.uint8)
    for index, picture in enumerate(pixels):
        top = index // columns * cell[0] + _GAP
        left = index % columns * cell[1] + _GAP
        sheet[top : top + height, left : left + width] = picture
    return sheet


def encode_png(sheet: np.ndarray) -> bytes:
    """Returns a sheet as a PNG file."""
    import tensorflow as tf

    encoded: bytes = tf.io.encode_png(sheet).numpy()
    return encoded


def thumbnails(images: np.ndarray, *, most_bytes: int = 400_000) -> list[bytes]:
    """Returns each picture as a PNG file with at most 96 pixels a side.

    The pictures are rescaled together, as in a sheet. They become smaller than that if the files
    would have more than `most_bytes` bytes together.
    """
    pixels = to_rgb(images)
    side = _LARGEST_SIDE
    while True:
        files = [encode_png(image) for image in _shrink_images(pixels, side)]
        if side <= _SMALLEST_SIDE or sum(map(len, files)) <= most_bytes:
            return files
        side = side * 2 // 3


def to_rgb(images: np.ndarray) -> np.ndarray:
    """Returns pictures as uint8 with three channels, rescaled to 0 to 255."""
    low, high, *_ = summarize_array(images)
    low, high = low or 0.0, high or 0.0
    values = np.clip(np.nan_to_num(images.astype(np.float64), nan=low), low, high)
    images = np.round((values - low) / ((high - low) or 1.0) * 255.0).astype(np.uint8)
    return np.repeat(images, 3, axis=-1) if images.shape[-1] == 1 else images[..., :3]


def _shrink_images(images: np.ndarray, side: int) -> np.ndarray:
    """Returns pictures with at most `side` pixels a side; each pixel is the mean of an area."""
    height, width = images.shape[1:3]
    if max(height, width) <= side:
        return images
    import tensorflow as tf

    factor = side / max(height, width)
    size = max(1, round(height * factor)), max(1, round(width * factor))
    resized = tf.image.resize(images, size, method="area").numpy()
    return np.asarray(np.round(resized).clip(0, 255), np.uint8)


def enlarge_images(images: np.ndarray) -> np.ndarray:
    """Returns small pictures with each pixel as a square of pixels."""
    factor = max(1, math.ceil(_SMALLEST / max(images.shape[1:3])))
    return images.repeat(factor, axis=1).repeat(factor, axis=2)
