from __future__ import annotations

import collections
import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.models.resnet import _block_plan, resnet
from tests.support.keras_models import total_size


def _build(depth: int, version: float, **options: Any) -> tf_keras.Model:
    shape = {"input_shape": (64, 64, 3), "num_classes": 1000}
    return resnet(**(shape | {"depth": depth, "version": version} | options))


# torchvision's and timm's models of these papers, which have each convolution, scale and shift.
_PUBLISHED = {
    (18, 1): 11_689_512,
    (34, 1): 21_797_672,
    (50, 1): 25_557_032,
    (101, 1): 44_549_160,
    (152, 1): 60_192_808,
    (200, 1): 64_673_832,
    (50, 2): 25_549_352,
    (101, 2): 44_541_480,
    # Not published; version 2 has the same convolutions and 3,840 fewer channels to normalize.
    (152, 2): 60_192_808 - 2 * 3840,
    (200, 2): 64_673_832 - 2 * 3840,
}


@pytest.mark.slow
@pytest.mark.parametrize("depth", [50, 101, 152, 200])
def test_version_1_5_has_the_parameter_count_of_version_1(depth: int) -> None:
    model = _build(depth, 1.5)
    assert total_size(model.trainable_variables) == _PUBLISHED[depth, 1]


@pytest.mark.slow
@pytest.mark.parametrize("depth", [18, 34])
def test_model_garden_adds_one_projection_if_blocks_are_basic(depth: int) -> None:
    projection = 64 * 64 + 2 * 64
    model = _build(depth, 1.5)
    assert total_size(model.trainable_variables) == _PUBLISHED[depth, 1] + projection


@functools.cache
def _pieces(version: int) -> collections.Counter[tuple[int, int] | str]:
    """Sizes of the blocks of the network of 50 layers by channels and stride, and of the rest."""
    model, sizes = _build(50, version), collections.Counter[Any]()
    for filters, stride, name in _block_plan(50):
        # The first block is unique: its input has 64 channels, or is already activated.
        kind = name if name == "stage1_block1" else (filters, stride)
        own = [x for x in model.trainable_variables if x.name.startswith(f"{name}_")]
        assert sizes[kind] in (0, total_size(own))
        sizes[kind] = total_size(own)
    sizes["rest"] = total_size(
        [x for x in model.trainable_variables if not x.name.startswith("stage")]
    )
    return sizes


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "version"), [key for key in _PUBLISHED if key[0] >= 50])
def test_bottleneck_networks_have_the_published_parameter_counts(depth: int, version: int) -> None:
    """Blocks of one kind have equal sizes, so the deepest networks need not be built."""
    pieces = _pieces(version)
    plan = [name if name == "stage1_block1" else (filters, stride)
            for filters, stride, name in _block_plan(depth)]  # fmt: skip
    assert 3 * len(plan) + 2 == depth
    assert pieces["rest"] + sum(pieces[kind] for kind in plan) == _PUBLISHED[depth, version]


@pytest.mark.slow
@pytest.mark.parametrize("depth", [18, 34])
def test_basic_block_networks_have_the_published_parameter_counts(depth: int) -> None:
    assert total_size(_build(depth, 1).trainable_variables) == _PUBLISHED[depth, 1]
    # Version 2 ends with another batch norm, of 512 channels. It lacks those of the three
    # projections (128, 256 and 512), and the first ones of the four stages have 512 fewer channels.
    assert total_size(_build(depth, 2).trainable_variables) == _PUBLISHED[depth, 1] - 2 * 896


@pytest.mark.slow
def test_the_deepest_network_builds() -> None:
    model = _build(200, 2)
    convolutions = [x for x in model.layers if isinstance(x, tf_keras.layers.Conv2D)]
    assert len([x for x in convolutions if not x.name.endswith("_shortcut")]) == 199


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 1.5, 2])
@pytest.mark.parametrize(("size", "left"), [(224, 7), (64, 2), (33, 2), (32, 1)])
def test_feature_map_is_32_times_smaller_than_the_image(
    version: float, size: int, left: int
) -> None:
    model = _build(18, version, input_shape=(size, size, 3))
    assert model.get_layer("pool").input_shape == (None, left, left, 512)


def _strided(model: tf_keras.Model) -> set[str]:
    """Names of the convolutions with a stride, without the number of the stage."""
    return {x.name.split("_", 1)[1] for x in model.layers
            if isinstance(x, tf_keras.layers.Conv2D) and x.strides == (2, 2)}  # fmt: skip


@pytest.mark.slow
def test_position_of_the_stride_depends_on_the_version() -> None:
    assert _strided(_build(50, 1)) == {"conv", "block1_conv1", "block1_shortcut"}
    assert _strided(_build(50, 2)) == {"conv", "block1_conv2", "block1_shortcut"}
    blocks = [x for x in _build(50, 1.5).get_layer("backbone").layers if hasattr(x, "_conv3")]
    assert {(x._conv1.strides, x._conv2.strides) for x in blocks} == {
        ((1, 1), (1, 1)),
        ((1, 1), (2, 2)),
    }


def test_version_2_activates_once_before_the_first_block_and_once_after_the_last() -> None:
    model = _build(18, 2)
    shortcut = model.get_layer("stage1_block1_add").input[1]
    assert shortcut is model.get_layer("stem_pool").output
    assert model.get_layer("pool").input is model.get_layer("final_relu").output
    names = [layer.name for layer in model.layers]
    assert "stage1_block1_conv1_bn" not in names
    assert "stage1_block2_conv1_bn" in names
    # Where the shape changes, the projection starts after the activation.
    projection = model.get_layer("stage2_block1_shortcut")
    assert projection.input is model.get_layer("stage2_block1_conv1_relu").output


def _norms(model: tf_keras.Model) -> list[Any]:
    kind = tf_keras.layers.BatchNormalization
    return [x for x in model._flatten_layers() if isinstance(x, kind)]


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 1.5, 2])
def test_settings_reach_every_batch_norm(version: float) -> None:
    model = _build(18, version, batch_norm_momentum=0.8, batch_norm_epsilon=1e-3, use_sync_bn=True)
    norms = _norms(model)
    assert len(norms) == {1: 20, 1.5: 21, 2: 17}[version]
    assert {(x.momentum, x.epsilon, x.synchronized) for x in norms} == {(0.8, 1e-3, True)}


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "version"), [(18, 1), (50, 1), (18, 1.5), (50, 1.5)])
def test_zero_init_last_bn_makes_blocks_start_as_their_shortcuts(
    depth: int, version: float
) -> None:
    def zeros(model: tf_keras.Model) -> int:
        return sum(not np.any(norm.gamma) for norm in _norms(model))

    model = _build(depth, version, zero_init_last_bn=True)
    assert zeros(_build(depth, version)) == 0
    assert zeros(model) == {18: 8, 50: 16}[depth]
    if version == 1:
        last = "conv2" if depth == 18 else "conv3"
        assert not np.any(model.get_layer(f"stage4_block2_{last}_bn").gamma)
        return
    block = next(x for x in reversed(model.get_layer("backbone").layers) if hasattr(x, "_conv2"))
    x = np.random.default_rng(1).normal(size=(2, *block.input_shape[1:])).astype("float32")
    np.testing.assert_array_equal(block(x, training=True), tf.nn.relu(x))


def test_version_2_rejects_zero_init_last_bn() -> None:
    with pytest.raises(ValueError, match="version 2"):
        _build(18, 2, zero_init_last_bn=True)


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 1.5, 2])
def test_dropout_is_applied_to_the_pooled_features(version: float) -> None:
    model = _build(18, version, dropout_rate=0.25)
    assert model.get_layer("dropout").rate == 0.25
    assert model.get_layer("logits").input is model.get_layer("dropout").output
    assert "dropout" not in [layer.name for layer in _build(18, version).layers]


@pytest.mark.slow
def test_zero_init_last_bn_works_on_mirrored_replicas() -> None:
    devices = ["CPU:0", "CPU:1"]
    strategy = tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())
    with strategy.scope():
        model = _build(18, 1.5, zero_init_last_bn=True)
    scales = [norm.gamma for norm in _norms(model)]
    for replica in range(2):
        values = [strategy.experimental_local_results(scale)[replica] for scale in scales]
        assert sum(not np.any(value) for value in values) == 8
