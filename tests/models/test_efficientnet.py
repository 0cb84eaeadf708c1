from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import tf_keras

from orbit_runner.models.imagenet import efficientnet
from tests.support.keras_models import total_size


def _build(model_id: str = "b0", **options: Any) -> tf_keras.Model:
    shape = {"input_shape": (32, 32, 3), "num_classes": 1000}
    return efficientnet(**(shape | {"model_id": model_id} | options))


# torchvision's `efficientnet_b0` to `efficientnet_b7`; Tan and Le 2019, table 2, has 5.3M, 7.8M,
# 9.2M, 12M, 19M, 30M, 43M and 66M.
_PUBLISHED = {
    "b0": 5_288_548,
    "b1": 7_794_184,
    "b2": 9_109_994,
    "b3": 12_233_232,
    "b4": 19_341_616,
    "b5": 30_389_784,
    "b6": 43_040_704,
    "b7": 66_347_960,
}


@functools.cache
def _plain() -> tf_keras.Model:
    return _build()


@pytest.mark.slow
@pytest.mark.parametrize("model_id", _PUBLISHED)
def test_networks_have_the_published_parameter_counts(model_id: str) -> None:
    assert total_size(_build(model_id).trainable_variables) == _PUBLISHED[model_id]


def _blocks(model: tf_keras.Model) -> list[Any]:
    return [x for x in model.get_layer("backbone").layers if hasattr(x, "_squeeze_excitation")]


@pytest.mark.slow
def test_stochastic_depth_rate_increases_with_block_depth() -> None:
    """Where the shape changes there is no shortcut, and Model Garden's block drops nothing."""
    blocks = _blocks(_build(stochastic_depth_drop_rate=0.32))
    assert len(blocks) == 16
    rates = [block._stochastic_depth._drop_rate for block in blocks]
    np.testing.assert_allclose(rates, 0.02 * np.arange(16))
    assert {
        block._stochastic_depth for block in _blocks(_build(stochastic_depth_drop_rate=0.0))
    } == {None}


@pytest.mark.slow
def test_settings_reach_the_layers() -> None:
    model = _build(
        batch_norm_momentum=0.8,
        batch_norm_epsilon=1e-4,
        use_sync_bn=True,
        dropout_rate=0.4,
        se_ratio=0.5,
    )
    kind = tf_keras.layers.BatchNormalization
    norms = [x for x in model._flatten_layers() if isinstance(x, kind)]
    # One block does not widen its input first, and has no batch norm for that.
    assert len([norm for norm in norms if norm.built]) == 3 * 16 - 1 + 2
    assert {(x.momentum, x.epsilon, x.synchronized) for x in norms} == {(0.8, 1e-4, True)}
    assert model.get_layer("dropout").rate == 0.4
    assert _blocks(model)[1]._squeeze_excitation._se_reduce.filters == 8
    assert _blocks(_build(se_ratio=0.0))[1]._squeeze_excitation is None


@pytest.mark.slow
def test_kernel_initialization_matches_the_authors_code() -> None:
    model = _plain()
    block = _blocks(model)[-1]
    assert np.std(block._conv2.kernel) == pytest.approx((2 / 320) ** 0.5, rel=0.02)
    assert np.std(block._conv1.depthwise_kernel) == pytest.approx((2 / 9) ** 0.5, rel=0.02)
    kernel = model.get_layer("logits").kernel.numpy()
    assert np.max(np.abs(kernel)) == pytest.approx(1000**-0.5, rel=0.01)
