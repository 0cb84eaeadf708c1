from __future__ import annotations

import sys

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.models.catalog import nearest_cifar_depths
from orbit_runner.models.resnet_cifar import PadShortcut, convolution, resnet_cifar


def _build(depth: int, version: int, **kwargs) -> tf_keras.Model:
    return resnet_cifar(
        input_shape=(32, 32, 3), num_classes=10, depth=depth, version=version, **kwargs
    )


def _parameters(model: tf_keras.Model, *, batch_norm: bool = True) -> int:
    return sum(
        variable.shape.num_elements()
        for variable in model.trainable_variables
        if batch_norm or "_bn/" not in variable.name
    )


def _in_millions(parameters: int, digits: int) -> float:
    return round(parameters / 1e6, digits)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("depth", "parameters", "paper", "digits"),
    [
        (20, 269_722, 0.27, 2),
        (32, 464_154, 0.46, 2),
        (44, 658_586, 0.66, 2),
        (56, 853_018, 0.85, 2),
        (110, 1_727_962, 1.7, 1),
    ],
)
def test_version_1_has_the_published_parameter_counts(depth, parameters, paper, digits):
    """He et al. 2015, table 6."""
    assert _parameters(_build(depth, 1)) == parameters
    assert _in_millions(parameters, digits) == paper


def test_version_1_with_1202_layers_has_the_published_parameter_count():
    """He et al. 2015, table 6; every block of a stage after the first costs the same."""
    one, two = _parameters(_build(8, 1)), _parameters(_build(14, 1))
    assert _in_millions(one + 199 * (two - one), 1) == 19.4


@pytest.mark.slow
def test_version_2_with_164_layers_has_the_published_parameter_count():
    """He et al. 2016, table 4."""
    model = _build(164, 2)
    assert _parameters(model) == 1_703_258
    assert _in_millions(_parameters(model), 1) == 1.7


def test_version_2_with_1001_layers_has_the_published_parameter_count():
    """He et al. 2016, table 4: its 10.2M leave out the scales and shifts of batch norm."""
    models = _build(11, 2), _build(20, 2)
    one, two = (_parameters(model) for model in models)
    assert one + 110 * (two - one) == 10_327_706
    one, two = (_parameters(model, batch_norm=False) for model in models)
    assert _in_millions(one + 110 * (two - one), 1) == 10.2


@pytest.mark.sample(1)
@pytest.mark.parametrize(("depth", "version"), [(20, 1), (26, 1), (20, 2), (29, 2)])
def test_depth_counts_the_layers_with_weights(depth, version):
    layers = _build(depth, version).layers
    weighted = [
        layer.name
        for layer in layers
        if isinstance(layer, (tf_keras.layers.Conv2D, tf_keras.layers.Dense))
        and not layer.name.endswith("_shortcut")
    ]
    assert len(weighted) == depth


@pytest.mark.parametrize(
    ("version", "last", "shape"), [(1, "relu", (8, 8, 64)), (2, "add", (8, 8, 256))]
)
def test_each_stage_has_the_expected_output_shape(version, last, shape):
    model = _build(20, version)
    blocks = 3 if version == 1 else 2
    for stage, (scale, division) in enumerate([(4, 4), (2, 2), (1, 1)], start=1):
        layer = model.get_layer(f"stage{stage}_block{blocks}_{last}")
        expected = (shape[0] * scale, shape[1] * scale, shape[2] // division)
        assert layer.output_shape[1:] == expected


@pytest.mark.sample(2)
@pytest.mark.parametrize("version", [1, 2])
def test_convolutions_have_no_bias_and_batch_norm_is_fused(version, policy):
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
def test_shortcuts_of_version_1_have_no_parameters_and_those_of_version_2_project():
    def shortcuts(version):
        named = [x for x in _build(20, version).layers if x.name.endswith("_shortcut")]
        return {layer.name: layer.count_params() for layer in named}

    assert shortcuts(1) == {"stage2_block1_shortcut": 0, "stage3_block1_shortcut": 0}
    assert shortcuts(2) == {
        "stage1_block1_shortcut": 16 * 64,
        "stage2_block1_shortcut": 64 * 128,
        "stage3_block1_shortcut": 128 * 256,
    }


def test_projections_of_version_2_start_after_the_first_activation():
    model = _build(11, 2)
    for stage in (1, 2, 3):
        projection = model.get_layer(f"stage{stage}_block1_shortcut")
        assert projection.input is model.get_layer(f"stage{stage}_block1_conv1_relu").output


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


@pytest.mark.parametrize(
    ("depth", "version", "nearest"),
    [
        (8, 1, (8,)),
        (1202, 1, (1202,)),
        (11, 2, (11,)),
        (110, 2, (110,)),
        (1001, 2, (1001,)),
        (21, 1, (20, 26)),
        (111, 2, (110, 119)),
        (1000, 2, (992, 1001)),
        (7, 1, (8,)),
        (0, 2, (11,)),
        (-4, 1, (8,)),
    ],
)
def test_nearest_valid_depths_are_found(depth, version, nearest):
    assert nearest_cifar_depths(depth, version) == nearest


@pytest.mark.parametrize(
    ("depth", "version", "message"),
    [
        (21, 1, r"`depth` \(21\) must be 6n\+2 with n >= 1 in version 1; nearest: 20 and 26\."),
        (163, 2, r"`depth` \(163\) must be 9n\+2 with n >= 1 in version 2; nearest: 155 and 164\."),
        (2, 1, r"`depth` \(2\) must be 6n\+2 .* nearest: 8\."),
        (20, 3, r"`version` \(3\) must be 1 or 2\."),
    ],
)
def test_unsupported_depth_or_version_is_rejected(depth, version, message):
    with pytest.raises(ValueError, match=message):
        _build(depth, version)


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
