from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tf_keras

from orbit_runner.models.catalog import VIT_NAMES
from orbit_runner.models.imagenet import vit


def _build(name: str = "vit-ti16", size: int = 32, **options: Any) -> tf_keras.Model:
    shape = {"input_shape": (size, size, 3), "num_classes": 1000}
    return vit(**(shape | {"model_name": name} | options))


# timm's models of these names and torchvision's `vit_b_16`, `vit_b_32`, `vit_l_16`, `vit_l_32`.
_PUBLISHED = {
    "vit-ti16": 5_717_416,
    "vit-s16": 22_050_664,
    "vit-b16": 86_567_656,
    "vit-b32": 88_224_232,
    "vit-l16": 304_326_632,
    "vit-l32": 306_535_400,
}


def test_every_size_has_a_published_parameter_count() -> None:
    assert set(_PUBLISHED) == set(VIT_NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit-ti16", "vit-s16", "vit-b16", "vit-b32"])
def test_models_have_the_published_parameter_counts(name: str) -> None:
    assert _build(name, 224).count_params() == _PUBLISHED[name]


@pytest.mark.slow
def test_large_models_have_the_published_parameter_counts() -> None:
    """Builds the blocks only once: the two models differ only in patches and positions."""
    large = _build("vit-l16", 224)
    assert large.count_params() == _PUBLISHED["vit-l16"]
    width = 1024
    patches = 3 * (32**2 - 16**2) * width
    positions = (14**2 - 7**2) * width
    assert large.count_params() + patches - positions == _PUBLISHED["vit-l32"]


@pytest.mark.slow
def test_gap_pooler_has_no_class_token() -> None:
    token, gap = _build(), _build(pooler="gap")
    # The token, and its position.
    assert token.count_params() - gap.count_params() == 2 * 192
    assert {v.shape[1] for v in token.variables if "pos_embedding" in v.name} == {5}
    assert {v.shape[1] for v in gap.variables if "pos_embedding" in v.name} == {4}


def _blocks(model: tf_keras.Model) -> list[Any]:
    blocks = [x for x in model._flatten_layers() if hasattr(x, "_attention_layer")]
    assert len(blocks) == 12
    return blocks


@pytest.mark.slow
def test_dropout_rates_reach_the_blocks() -> None:
    model = _build(dropout_rate=0.1, attention_dropout_rate=0.2, init_stochastic_depth_rate=0.24)
    blocks = _blocks(model)
    assert {block._output_dropout.rate for block in blocks} == {0.1}
    assert {block._attention_layer._dropout for block in blocks} == {0.2}
    depths = [block._stochastic_depth._drop_rate for block in blocks]
    np.testing.assert_allclose(depths, np.arange(1, 13) * 0.02)


@pytest.mark.slow
def test_original_init_selects_the_kernel_initialization() -> None:
    def deviation(original: bool) -> float:
        model = _build(original_init=original)
        kernel = _blocks(model)[0]._intermediate_dense.kernel
        return float(np.std(kernel))

    assert deviation(True) == pytest.approx((2 / (192 + 768)) ** 0.5, rel=0.02)
    # Keras does not compensate: a normal distribution truncated at two deviations is narrower.
    assert deviation(False) == pytest.approx(0.02 * 0.8796, rel=0.02)


@pytest.mark.slow
def test_the_classifier_starts_at_zero() -> None:
    model = _build()
    assert not np.any(model(np.full((1, 32, 32, 3), 9, "uint8")))


@pytest.mark.parametrize("shape", [(30, 32, 3), (32, 33, 3), (8, 8, 3)])
def test_image_size_must_be_a_multiple_of_the_patch_size(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=rf"{shape[0]} × {shape[1]} pixels, .* multiples of 16"):
        _build(input_shape=shape)
