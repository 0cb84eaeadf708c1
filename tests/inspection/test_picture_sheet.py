"""The sheet of pictures: its pixels are those of the batch."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.inspection.picture_sheet import picture_sheet, png

_RANDOM = np.random.default_rng(3)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("channels", [1, 3])
def test_each_picture_of_the_sheet_has_the_rescaled_pixels_of_the_batch(
    dtype: type, channels: int
) -> None:
    images = (_RANDOM.random((5, 64, 48, channels)) * 200).astype(dtype)
    low, high = images.min(), images.max()

    sheet = picture_sheet(images, columns=2)

    for index, image in enumerate(images):
        top, left = 4 + index // 2 * 68, 4 + index % 2 * 52
        expected = np.round((image.astype(float) - low) / (float(high) - low) * 255)
        part = sheet[top : top + 64, left : left + 48]
        assert np.array_equal(part, np.broadcast_to(expected, (64, 48, 3)))
    assert sheet.shape == (3 * 68 + 4, 2 * 52 + 4, 3)


def test_small_pictures_are_enlarged_by_a_whole_factor() -> None:
    images = np.arange(64, dtype=np.uint8).reshape(1, 8, 8, 1)

    sheet = picture_sheet(images)[4:-4, 4:-4, 0]

    assert sheet.shape == (48, 48)
    assert np.array_equal(sheet[::6, ::6], np.round(images[0, :, :, 0] / 63 * 255))


def test_captions_are_drawn_below_the_pictures() -> None:
    images = np.zeros((2, 48, 48, 1), np.uint8)

    sheet = picture_sheet(images, ["1", "10"])

    below = sheet[52:66, :, 0] < 255
    assert 0 < below[:, 4:52].sum() < below[:, 56:104].sum()
    assert not below[:, 52:56].any()


def test_png_file_decodes_to_the_sheet() -> None:
    sheet = picture_sheet(_RANDOM.integers(0, 256, (3, 8, 8, 3)).astype(np.uint8))

    assert np.array_equal(tf.io.decode_png(png(sheet)).numpy(), sheet)
