from __future__ import annotations

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from orbit_runner.data.images.headers import image_shape
from orbit_runner.data.tfrecord.example import bytes_of, features_of
from tests.support.tfrecords import example


@pytest.mark.parametrize("size", [0, 1, 127, 128, 40_000])
def test_parsed_features_match_tensorflow(size):
    encoded = np.random.default_rng(size).bytes(size)
    record = example(encoded, -5)
    features = features_of(record)
    expected = tf.train.Example.FromString(record).features.feature
    assert [*features] == sorted(expected)
    for name, value in expected.items():
        assert features[name].SerializeToString() == value.SerializeToString()
    assert bytes_of(features["image/encoded"]) == encoded
    with pytest.raises(ValueError, match="no bytes"):
        bytes_of(features["image/class/label"])


def test_truncated_example_is_rejected():
    record = example(b"\x89PNG" * 50, 3)
    for length in range(1, len(record)):
        with pytest.raises(ValueError, match=r"not a tf\.Example"):
            features_of(record[:length])


def _noise(height, width, channels):
    return np.random.default_rng(1).integers(0, 256, (height, width, channels)).astype(np.uint8)


@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 300, 1), (300, 7, 3), (16, 16, 4)])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_png_shape_matches_the_decoded_image(shape, dtype):
    encoded = tf.io.encode_png(_noise(*shape).astype(dtype)).numpy()
    assert image_shape(encoded) == tuple(tf.io.decode_png(encoded).shape) == shape


@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 300, 1), (300, 7, 3)])
@pytest.mark.parametrize("progressive", [False, True])
def test_jpeg_shape_matches_the_decoded_image(shape, progressive):
    encoded = tf.io.encode_jpeg(_noise(*shape), progressive=progressive, xmp_metadata="x" * 999)
    assert image_shape(encoded.numpy()) == tuple(tf.io.decode_jpeg(encoded).shape) == shape


def test_cmyk_jpeg_has_three_channels():
    file = io.BytesIO()
    Image.new("CMYK", (300, 7)).save(file, "JPEG")
    assert image_shape(file.getvalue()) == (7, 300, 3)


def test_grayscale_png_with_transparency_has_one_channel():
    pixels = _noise(3, 3, 2)
    encoded = tf.io.encode_png(pixels).numpy()
    assert image_shape(encoded) == (3, 3, 1)
    np.testing.assert_array_equal(tf.io.decode_png(encoded, channels=1), pixels[..., :1])
