"""Each rule against its layer, in float64, so that rounding cannot hide a misplaced pixel."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.distribute.spatial.grid import part_bounds
from orbit_runner.distribute.spatial.halo import compute_window, find_input
from orbit_runner.models.resnet_blocks import PadShortcut

layers = tf_keras.layers

LAYERS = {
    "conv3": lambda: layers.Conv2D(5, 3, padding="same"),
    "conv3_relu": lambda: layers.Conv2D(5, 3, padding="same", activation="relu"),
    "conv1": lambda: layers.Conv2D(5, 1),
    "conv1_stride2": lambda: layers.Conv2D(5, 1, 2, use_bias=False),
    "conv3_stride2_same": lambda: layers.Conv2D(5, 3, 2, padding="same"),
    "conv3_stride2_valid": lambda: layers.Conv2D(5, 3, 2, padding="valid"),
    "conv7_stride2": lambda: layers.Conv2D(5, 7, 2, padding="same"),
    "conv_tall": lambda: layers.Conv2D(5, (5, 2), (1, 3), padding="same"),
    "conv_dilated": lambda: layers.Conv2D(5, 3, dilation_rate=2, padding="same"),
    "depthwise": lambda: layers.DepthwiseConv2D(3, 2, padding="same", depth_multiplier=2),
    "max_pool_same": lambda: layers.MaxPool2D(3, 2, padding="same"),
    "max_pool_valid": lambda: layers.MaxPool2D(2, 2),
    "mean_pool_same": lambda: layers.AveragePooling2D(3, 2, padding="same"),
    "mean_pool_valid": lambda: layers.AveragePooling2D((3, 2), 1),
    "zeros": lambda: layers.ZeroPadding2D(1),
    "zeros_on_some_sides": lambda: layers.ZeroPadding2D(((0, 2), (3, 0))),
    "more_zeros_than_pixels": lambda: layers.ZeroPadding2D(20),
    "cropping": lambda: layers.Cropping2D(((3, 0), (1, 4))),
    "shortcut": lambda: PadShortcut(7, 2),
    "batch_norm": lambda: layers.BatchNormalization(momentum=0.8),
    "batch_norm_bare": lambda: layers.BatchNormalization(scale=False, center=False),
    "relu": lambda: layers.ReLU(),
    "mean": lambda: layers.GlobalAveragePooling2D(),
    "mean_pixel": lambda: layers.GlobalAveragePooling2D(keepdims=True),
    "flatten": lambda: layers.Flatten(),
}
EXACT = {"outputs": 1e-12, "gradients": 1e-11, "state": 1e-12}


@pytest.fixture(autouse=True)
def float64():
    tf_keras.mixed_precision.set_global_policy("float64")


def _alone(layer, height=13, width=14, dtype="float64"):
    inputs = tf_keras.Input((height, width, 3), dtype=dtype)
    return tf_keras.Model(inputs, layer(inputs))


def _images(height=13, width=14):
    return np.random.default_rng(3).normal(0.4, 1.3, (3, height, width, 3))


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", LAYERS)
def test_partitioned_layer_matches_the_original(name, steps, close):
    close(*steps(_alone(LAYERS[name]()), [1, 2, 2, 1], _images()), **EXACT)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["conv3_stride2_same", "batch_norm", "mean", "flatten"])
def test_batch_dimension_may_be_split_too(name, steps, close):
    close(*steps(_alone(LAYERS[name]()), [2, 1, 2, 1], _images()), **EXACT)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["conv7_stride2", "conv_dilated", "max_pool_same"])
def test_halo_may_be_wider_than_the_neighboring_part(name, steps, close):
    """With two rows in each part, a kernel of size seven reads from up to four parts."""
    close(*steps(_alone(LAYERS[name](), 8, 9), [1, 4, 1, 1], _images(8, 9)), **EXACT)


def test_batch_norm_in_evaluation_uses_the_moving_averages(steps, close):
    model = _alone(layers.BatchNormalization())
    model.set_weights([np.full(3, value) for value in (1.5, -0.5, 0.3, 2.0)])
    close(*steps(model, [1, 2, 2, 1], _images(), training=False), **EXACT)


def test_frozen_batch_norm_keeps_its_moving_averages(steps, close):
    model = _alone(layers.BatchNormalization(trainable=False))
    whole, parts = steps(model, [1, 2, 2, 1], _images())
    close(whole, parts, **EXACT)
    assert set(np.concatenate(list(parts.state.values()))) == {0.0, 1.0}


def test_fixed_training_argument_of_a_layer_or_model_is_respected(steps, close):
    inner = _alone(layers.BatchNormalization(name="inner"))
    inputs = tf_keras.Input((13, 14, 3), dtype="float64")
    x = layers.BatchNormalization(name="outer")(inputs, training=False)
    model = tf_keras.Model(inputs, inner(x, training=False))
    whole, parts = steps(model, [1, 2, 2, 1], _images())
    close(whole, parts, **EXACT)
    assert set(np.concatenate(list(parts.state.values()))) == {0.0, 1.0}


def test_batch_norm_estimates_the_variance_as_the_fused_kernel_does(steps, close):
    """With few pixels, so that dividing by n - 1 instead of n makes a difference."""
    tf_keras.mixed_precision.set_global_policy("float32")
    model = _alone(layers.BatchNormalization(momentum=0.0, name="norm"), 2, 2, "float32")
    assert model.layers[-1].fused
    images = _images(2, 2).astype("float32")
    whole, parts = steps(model, [1, 2, 2, 1], images)
    close(whole, parts, outputs=1e-5, gradients=1e-4, state=1e-5)
    variance = np.var(images, (0, 1, 2), ddof=1)
    np.testing.assert_allclose(parts.state["norm/moving_variance:0"], variance, 1e-5)


def test_squeeze_and_excitation_scales_all_parts(steps, close):
    """Squeeze and excitation: the mean over all parts, two layers, and back to the parts."""
    inputs = tf_keras.Input((9, 9, 3), dtype="float64")
    x = layers.Conv2D(6, 3, padding="same")(inputs)
    scale = layers.GlobalAveragePooling2D(keepdims=True)(x)
    scale = layers.Conv2D(6, 1, activation="sigmoid")(layers.Conv2D(2, 1)(scale))
    model = tf_keras.Model(inputs, layers.Multiply()([x, scale]))
    for dims in ([1, 2, 2, 1], [3, 1, 1, 1]):
        close(*steps(model, dims, _images(9, 9)), **EXACT)


@pytest.mark.slow
def test_branches_functions_and_nested_models_can_be_partitioned(steps, close):
    inner_inputs = tf_keras.Input((9, 9, 4), dtype="float64")
    inner = tf_keras.Model(
        inner_inputs, {"b": layers.Conv2D(4, 3, padding="same")(inner_inputs), "a": inner_inputs}
    )
    inputs = tf_keras.Input((9, 9, 3), dtype="float64")
    x = layers.Conv2D(4, 3, padding="same")(inputs)
    both = inner(x)
    x = tf.nn.relu(both["a"] * 0.5 + both["b"]) + x
    x = layers.Concatenate()([x, inner(x)["b"]])
    model = tf_keras.Model(inputs, layers.GlobalAveragePooling2D()(x))
    close(*steps(model, [1, 2, 2, 1], _images(9, 9)), **EXACT)


def test_parts_cover_all_pixels_and_are_almost_equal_in_size():
    for size in range(1, 20):
        for parts in range(1, size + 1):
            intervals = part_bounds(size, parts)
            assert [pixel for start, stop in intervals for pixel in range(start, stop)] == list(
                range(size)
            )
            sizes = [stop - start for start, stop in intervals]
            assert max(sizes) - min(sizes) <= 1


def test_reach_returns_the_pieces_and_the_padding():
    parts = [(0, 3), (3, 5), (5, 8)]
    assert find_input((-2, 6), parts).pieces == ((0, 0, 3), (1, 0, 2), (2, 0, 1))
    assert find_input((-2, 6), parts).pads == (2, 0)
    assert find_input((4, 10), parts).pieces == ((1, 1, 2), (2, 0, 3))
    assert find_input((4, 10), parts).pads == (0, 2)
    assert find_input((9, 12), parts).pads == (3, 0)


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(3, 2, 1), (7, 2, 1), (3, 1, 2)])
def test_window_has_as_many_outputs_as_in_tensorflow(kernel, stride, dilation, padding):
    for length in range(7, 16):
        conv = tf.nn.conv2d(
            tf.zeros([1, length, length, 1]),
            tf.zeros([kernel, kernel, 1, 1]),
            stride,
            padding.upper(),
            dilations=dilation,
        )
        assert compute_window(length, kernel, stride, dilation, padding).outputs == conv.shape[1]
