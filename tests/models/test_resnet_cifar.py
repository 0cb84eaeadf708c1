import sys

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.models.configs import ResNetCifarConfig
from orbit_runner.models.layers import ImageInput
from orbit_runner.models.resnet_cifar import PadShortcut, convolution, resnet_cifar
from tests.support.keras_models import total_size


def _build(depth, version, **kwargs):
    config = ResNetCifarConfig(depth=depth, version=version, **kwargs)
    return resnet_cifar(config, ImageInput((32, 32, 3), 10))


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("version", "depth", "parameters"),
    [
        # He et al. 2015, table 6, has 0.27 and 1.7 million.
        (1, 20, 269_722),
        (1, 110, 1_727_962),
        (2, 164, 1_703_258),  # He et al. 2016, table 4, has 1.7 million.
    ],
)
def test_networks_have_the_published_parameter_counts(version, depth, parameters):
    assert total_size(_build(depth, version).trainable_variables) == parameters


@pytest.mark.parametrize("version", [1, 2])
def test_convolutions_have_no_bias_and_batch_norm_is_fused(version):
    options = {"batch_norm_momentum": 0.8, "batch_norm_epsilon": 1e-3}
    layers = _build(20, version, **options).layers
    assert not any(layer.use_bias for layer in layers if isinstance(layer, tf_keras.layers.Conv2D))
    norms = [layer for layer in layers if isinstance(layer, tf_keras.layers.BatchNormalization)]
    assert len(norms) == 19
    assert {(norm.fused, norm.momentum, norm.epsilon) for norm in norms} == {(True, 0.8, 1e-3)}
    assert not any(norm.synchronized for norm in norms)
    across = [x for x in _build(20, version, use_sync_bn=True).layers if hasattr(x, "synchronized")]
    assert [norm.synchronized for norm in across] == [True] * 19


@pytest.mark.slow
def test_version_2_stage_is_the_identity_if_its_residuals_are_zero():
    """He et al. 2016, equation 3: nothing but the addition lies on the shortcut path."""
    model = _build(29, 2)
    for layer in model.layers:
        if layer.name.startswith("stage1_block") and layer.name.endswith("_conv3"):
            layer.set_weights([np.zeros_like(layer.get_weights()[0])])
    ends = [model.get_layer(f"stage1_block{block}_add").output for block in (1, 3)]
    pixels = np.random.default_rng(2).integers(0, 256, (1, 32, 32, 3), "uint8")
    first, last = tf_keras.Model(model.input, ends)(pixels)
    assert np.any(first.numpy() < 0)
    np.testing.assert_array_equal(first, last)


def test_version_1_block_is_its_rectified_shortcut_if_its_residual_is_zero():
    model = _build(8, 1)
    layer = model.get_layer("stage2_block1_conv2")
    layer.set_weights([np.zeros_like(layer.get_weights()[0])])
    names = ["stage1_block1_relu", "stage2_block1_relu"]
    ends = [model.get_layer(name).output for name in names]
    pixels = np.random.default_rng(2).integers(0, 256, (1, 32, 32, 3), "uint8")
    before, after = tf_keras.Model(model.input, ends)(pixels)
    np.testing.assert_array_equal(after[..., :16], before[:, ::2, ::2])
    assert not np.any(after[..., 16:])


@pytest.mark.slow
def test_networks_deeper_than_the_recursion_limit_build():
    before = sys.getrecursionlimit()
    assert len(_build(302, 1).layers) > before
    assert sys.getrecursionlimit() == before


def _features(height, width, channels):
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
