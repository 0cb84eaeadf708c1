"""The networks that classify texts: padding has no effect, and the order of words may have one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tf_keras

from orbit_runner.registry import TEXT_CLASSIFIERS

_SIZES: dict[str, dict[str, Any]] = {
    "bag_of_words": {"hidden_units": [6]},
    "transformer": {"num_layers": 1, "num_attention_heads": 2, "intermediate_size": 8},
}
TOKENS = np.array([[5, 2, 9], [7, 0, 0], [0, 0, 0]], np.int32)


def _model(name: str, length: int) -> tf_keras.Model:
    return TEXT_CLASSIFIERS.get(name).load()(
        vocab_size=10, length=length, num_classes=4, embedding_width=8, **_SIZES[name]
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", _SIZES)
def test_padding_does_not_change_the_logits(name: str) -> None:
    short, long = _model(name, 3), _model(name, 12)
    weights = zip(short.get_weights(), long.get_weights(), strict=True)
    long.set_weights(
        [  # More rows for more positions.
            np.pad(
                one, [(0, more - rows) for rows, more in zip(one.shape, other.shape, strict=True)]
            )
            for one, other in weights
        ]
    )
    padded = np.pad(TOKENS, ((0, 0), (0, 9)))
    found = short(TOKENS).numpy()
    assert found.shape == (3, 4)
    np.testing.assert_allclose(long(padded), found, atol=1e-5)
    assert np.abs(found[0] - found[1]).max() > 1e-4
    np.testing.assert_allclose(found[2], short.get_weights()[-1], atol=1e-6)


@pytest.mark.parametrize("name", _SIZES)
def test_logits_are_float32_with_16_bits(name: str) -> None:
    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        model = _model(name, 3)
        assert model(TOKENS).dtype.name == "float32"
        assert {variable.dtype.name for variable in model.trainable_variables} == {"float32"}
    finally:
        tf_keras.mixed_precision.set_global_policy(before)
