from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.models.resnet_blocks import PadShortcut, convolution


def _features(height: int, width: int, channels: int) -> np.ndarray:
    shape = (2, height, width, channels)
    return np.random.default_rng(5).normal(size=shape).astype("float32")


@pytest.mark.parametrize("size", [(8, 8), (7, 5)])
@pytest.mark.parametrize(("stride", "filters"), [(2, 6), (1, 6), (2, 3), (3, 4)])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_pad_shortcut_matches_numpy(size, stride, filters, jit_compile):
    x = _features(*size, 3)
    expected = np.zeros((2, -(-size[0] // stride), -(-size[1] // stride), filters), "float32")
    expected[..., :3] = x[:, ::stride, ::stride]
    got = tf.function(PadShortcut(filters, stride), jit_compile=jit_compile)(x)
    np.testing.assert_array_equal(got, expected)


def test_pad_shortcut_passes_the_gradient_only_to_the_kept_pixels():
    x = tf.constant(_features(4, 4, 3))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(PadShortcut(8, 2)(x))
    expected = np.zeros(x.shape)
    expected[:, ::2, ::2] = 1
    np.testing.assert_array_equal(tape.gradient(y, x), expected)


def test_pad_shortcut_keeps_the_dtype_and_round_trips_through_its_config(policy):
    layer = PadShortcut(6, 2, name="shortcut")
    x = tf.cast(_features(4, 4, 3), policy.compute_dtype)
    again = PadShortcut.from_config(layer.get_config())
    assert (again(x).dtype, again.name) == (policy.compute_dtype, "shortcut")
    np.testing.assert_array_equal(again(x), layer(x))
    assert layer.variables == []


@pytest.mark.parametrize("size", [(8, 8), (7, 5)])
@pytest.mark.parametrize("kernel_size", [1, 3])
def test_strided_kernels_are_centered_on_the_pixels_kept_by_the_shortcut(size, kernel_size):
    inputs = tf_keras.Input((*size, 3))
    model = tf_keras.Model(inputs, convolution(inputs, 3, kernel_size, "conv", stride=2))
    kernel = np.zeros((kernel_size, kernel_size, 3, 3), "float32")
    kernel[kernel_size // 2, kernel_size // 2] = np.eye(3)
    model.set_weights([kernel])
    x = _features(*size, 3)
    np.testing.assert_allclose(model(x), x[:, ::2, ::2], rtol=1e-6)


def test_kernels_are_initialized_he_normal_by_fan_in():
    inputs = tf_keras.Input((4, 4, 32))
    tf.random.set_seed(1)
    (kernel,) = tf_keras.Model(inputs, convolution(inputs, 128, 3, "conv")).get_weights()
    assert np.std(kernel) == pytest.approx(np.sqrt(2 / (3 * 3 * 32)), rel=0.02)
    assert np.mean(kernel) == pytest.approx(0, abs=1e-3)
