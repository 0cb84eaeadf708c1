from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.models.imagenet import resnet
from tests.support.keras_models import total_size


def _build(depth: int, **options: Any) -> tf_keras.Model:
    shape = {"input_shape": (64, 64, 3), "num_classes": 1000}
    return resnet(**(shape | {"depth": depth} | options))


# torchvision's and timm's models, which have each convolution, scale and shift. With basic blocks,
# Model Garden's have one more projection.
_PROJECTION = 64 * 64 + 2 * 64
_PUBLISHED = {
    18: 11_689_512 + _PROJECTION,
    34: 21_797_672 + _PROJECTION,
    50: 25_557_032,
    101: 44_549_160,
    152: 60_192_808,
    200: 64_673_832,
}


@pytest.mark.slow
@pytest.mark.parametrize("depth", _PUBLISHED)
def test_networks_have_the_published_parameter_counts(depth: int) -> None:
    assert total_size(_build(depth).trainable_variables) == _PUBLISHED[depth]


def _norms(model: tf_keras.Model) -> list[Any]:
    kind = tf_keras.layers.BatchNormalization
    return [x for x in model._flatten_layers() if isinstance(x, kind)]


@pytest.mark.slow
def test_settings_reach_the_layers() -> None:
    model = _build(
        18,
        batch_norm_momentum=0.8,
        batch_norm_epsilon=1e-3,
        use_sync_bn=True,
        dropout_rate=0.25,
    )
    norms = _norms(model)
    assert len(norms) == 21
    assert {(x.momentum, x.epsilon, x.synchronized) for x in norms} == {(0.8, 1e-3, True)}
    assert model.get_layer("dropout").rate == 0.25
    assert model.get_layer("logits").input is model.get_layer("dropout").output
    assert "dropout" not in [layer.name for layer in _build(18).layers]


@pytest.mark.slow
@pytest.mark.parametrize("depth", [18, 50])
def test_zero_init_last_bn_makes_blocks_start_as_their_shortcuts(depth: int) -> None:
    def zeros(model: tf_keras.Model) -> int:
        return sum(not np.any(norm.gamma) for norm in _norms(model))

    model = _build(depth, zero_init_last_bn=True)
    assert zeros(_build(depth)) == 0
    assert zeros(model) == {18: 8, 50: 16}[depth]
    block = next(x for x in reversed(model.get_layer("backbone").layers) if hasattr(x, "_conv2"))
    x = np.random.default_rng(1).normal(size=(2, *block.input_shape[1:])).astype("float32")
    np.testing.assert_array_equal(block(x, training=True), tf.nn.relu(x))


@pytest.mark.slow
def test_zero_init_last_bn_works_on_mirrored_replicas() -> None:
    devices = ["CPU:0", "CPU:1"]
    strategy = tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())
    with strategy.scope():
        model = _build(18, zero_init_last_bn=True)
    scales = [norm.gamma for norm in _norms(model)]
    for replica in range(2):
        values = [strategy.experimental_local_results(scale)[replica] for scale in scales]
        assert sum(not np.any(value) for value in values) == 8
