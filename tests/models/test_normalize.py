from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.models.layers import Normalize, normalized_input

_MEAN = (125.3, 123.0, 113.9)
_STD = (63.0, 62.1, 66.7)


def _pixels(dtype: str = "uint8") -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (4, 5, 6, 3)).astype(dtype)


@pytest.mark.parametrize("mean", [None, _MEAN, (120.0,)])
@pytest.mark.parametrize("std", [None, _STD, (64.0,)])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_normalized_values_match_numpy(mean, std, dtype):
    inputs, x = normalized_input((5, 6, 3), dtype, mean, std)
    pixels = _pixels(dtype)
    expected = (pixels.astype("float32") - np.float32(mean or 0)) / np.float32(std or 1)
    np.testing.assert_allclose(tf_keras.Model(inputs, x)(pixels), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("fraction", [0, 1 / 3])
def test_arithmetic_is_float32_and_rounded_once(policy, fraction):
    """Neither the mean nor a pixel of thirds fits 16 bits: an early cast would show."""
    pixels = _pixels() + np.float32(fraction) if fraction else _pixels()
    mean = (125.3, 123.7, 113.9)
    exact = (tf.constant(pixels, tf.float32) - mean) / _STD
    got = Normalize(mean, _STD)(pixels)
    assert got.dtype == policy.compute_dtype
    np.testing.assert_array_equal(got, tf.cast(exact, policy.compute_dtype))


@pytest.mark.parametrize("argument", ["mean", "std"])
def test_number_of_constants_must_match_the_channels(argument):
    constants = {"mean": None, "std": None, argument: (1.0, 2.0)}
    with pytest.raises(ValueError, match=rf"`{argument}` \(\(1.0, 2.0\)\) must have 1 value or 3"):
        normalized_input((5, 6, 3), "uint8", **constants)


@pytest.mark.parametrize("std", [(1.0, 0.0, 1.0), (-1.0,), (float("nan"),)])
def test_std_must_be_positive(std):
    with pytest.raises(ValueError, match=r"`std` .* must be positive"):
        Normalize(None, std)
