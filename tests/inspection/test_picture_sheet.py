"""The sheet of pictures: its pixels are those of the batch."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.inspection.picture_sheet import picture_sheet, thumbnails

_RANDOM = np.random.default_rng(3)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("channels", [1, 3])
def test_each_picture_of_the_sheet_has_the_rescaled_pixels_of_the_batch(dtype, channels):
    images = (_RANDOM.random((5, 64, 48, channels)) * 200).astype(dtype)
    low, high = images.min(), images.max()

    sheet = picture_sheet(images, columns=2)

    for index, image in enumerate(images):
        top, left = 4 + index // 2 * 68, 4 + index % 2 * 52
        expected = np.round((image.astype(float) - low) / (float(high) - low) * 255)
        part = sheet[top : top + 64, left : left + 48]
        assert np.array_equal(part, np.broadcast_to(expected, (64, 48, 3)))
    assert sheet.shape == (3 * 68 + 4, 2 * 52 + 4, 3)


def test_thumbnails_have_the_pixels_of_small_pictures():
    images = _RANDOM.integers(0, 256, (3, 12, 8, 3)).astype(np.uint8)
    images[0, 0, 0] = 0, 255, 0  # So that rescaling changes nothing.

    files = thumbnails(images)

    assert len(files) == 3
    for file, image in zip(files, images, strict=True):
        assert np.array_equal(tf.io.decode_png(file).numpy(), image)


def test_thumbnail_of_a_large_picture_has_the_means_of_its_areas():
    image = _RANDOM.integers(0, 256, (1, 192, 96, 1)).astype(np.uint8)
    image[0, 0, :2, 0] = 0, 255

    (file,) = thumbnails(image)

    thumbnail = tf.io.decode_png(file).numpy()
    means = image[0, :, :, 0].reshape(96, 2, 48, 2).mean(axis=(1, 3))
    assert thumbnail.shape == (96, 48, 3)
    np.testing.assert_allclose(thumbnail[..., 0], means, atol=0.51)


def test_thumbnails_become_smaller_until_they_fit():
    images = _RANDOM.integers(0, 256, (8, 96, 96, 3)).astype(np.uint8)

    files = thumbnails(images, most_bytes=60_000)

    assert sum(map(len, files)) <= 60_000
    assert tf.io.decode_png(files[0]).shape == (42, 42, 3)
