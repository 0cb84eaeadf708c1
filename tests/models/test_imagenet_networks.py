"""Properties of every network for large images."""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.registry import IMAGE_MODELS

_OPTIONS: dict[str, dict[str, Any]] = {
    "resnet": {"depth": 18},
    "vit": {"model_name": "vit-ti16"},
    "efficientnet": {"model_id": "b0"},
    "application": {"application": "MobileNetV2"},
}
_SIZE, _CLASSES = 32, 7


def _build(kind: str, **options: Any) -> tf_keras.Model:
    builder = IMAGE_MODELS.get(kind).load()
    shape = {"input_shape": (_SIZE, _SIZE, 3), "num_classes": _CLASSES}
    return builder(**(shape | _OPTIONS[kind] | options))


@functools.cache
def _built(kind: str) -> tf_keras.Model:
    return _build(kind, input_dtype="float32", mean=(125.0, 123.0, 114.0), std=(63.0, 62.0, 66.0))


@pytest.fixture(params=_OPTIONS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def _pixels(dtype: str = "uint8") -> np.ndarray:
    return np.random.default_rng(7).integers(0, 256, (8, _SIZE, _SIZE, 3)).astype(dtype)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["mixed_float16", "mixed_bfloat16"])
def test_logits_and_variables_stay_float32_under_16_bit_policies(kind: str, precision: str) -> None:
    tf_keras.mixed_precision.set_global_policy(precision)
    model = _build(kind)

    logits = model(_pixels())

    assert (logits.dtype, logits.shape) == (tf.float32, (8, _CLASSES))
    assert np.all(np.isfinite(logits))
    assert {variable.dtype for variable in model.variables} == {tf.float32}
    assert model.get_layer("normalize").compute_dtype == precision.removeprefix("mixed_")
    assert model.get_layer("pool").compute_dtype == precision.removeprefix("mixed_")


@pytest.mark.slow
def test_two_builds_from_one_seed_have_equal_names_and_weights(kind: str) -> None:
    def build() -> tf_keras.Model:
        tf_keras.utils.set_random_seed(3)
        return _build(kind)

    first, second = build(), build()

    names = [variable.name for variable in first.variables]
    assert len(set(names)) == len(names)
    assert names == [variable.name for variable in second.variables]
    assert first.name == second.name
    for name, one, two in zip(names, first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two, err_msg=name)


@pytest.mark.sample(1)
def test_kernels_of_equal_shape_start_with_different_values(kind: str) -> None:
    kernels = defaultdict(list)
    for variable in _built(kind).trainable_variables:
        if "kernel" in variable.name and not variable.name.startswith("logits"):
            kernels[tuple(variable.shape)].append(variable.numpy().tobytes())

    assert max(map(len, kernels.values())) > 2
    for shape, values in kernels.items():
        assert len(set(values)) == len(values), shape


@pytest.mark.slow
def test_raw_pixels_are_normalized(kind: str) -> None:
    """Shifting the pixels and the mean by the same amount leaves the logits unchanged."""
    plain = _built(kind)
    shifted = _build(kind, mean=(135.0, 133.0, 124.0), std=(63.0, 62.0, 66.0))
    weights = [np.random.default_rng(0).normal(size=x.shape) if x.ndim == 2 else x
               for x in plain.get_weights()]  # fmt: skip
    pixels = (_pixels() // 2).astype("uint8")
    before = plain.get_weights()
    plain.set_weights(weights)
    shifted.set_weights(weights)

    logits = plain(pixels.astype("float32"))
    plain.set_weights(before)

    assert np.std(logits) > 0
    np.testing.assert_allclose(shifted(pixels + 10), logits, rtol=1e-3, atol=1e-3)


@pytest.mark.sample(1)
def test_a_gradient_reaches_every_trainable_variable(kind: str) -> None:
    model = _built(kind)
    kernel = model.get_layer("logits").kernel
    before = kernel.numpy()
    kernel.assign(np.random.default_rng(0).normal(size=kernel.shape))

    with tf.GradientTape() as tape:
        logits = model(_pixels("float32"), training=True)
        entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(8) % _CLASSES, logits)
        loss = tf.reduce_mean(entropy)
    gradients = tape.gradient(loss, model.trainable_variables)
    kernel.assign(before)

    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        assert gradient is not None, variable.name
        assert np.all(np.isfinite(gradient)), variable.name
        assert np.any(gradient), variable.name


def test_config_settings_match_the_arguments_and_defaults_of_the_builder() -> None:
    for entry in IMAGE_MODELS.entries():
        config = entry.load_config()(name=entry.name)
        settings = config.as_dict()
        # The task gives these to every network, or keeps them for the data.
        for name in ("name", "num_classes", "input_size"):
            del settings[name]
        settings.pop("weights", None)
        builder: Callable[..., Any] = entry.load()
        defaults = {
            name: list(argument.default) if isinstance(argument.default, tuple)
            else argument.default
            for name, argument in inspect.signature(builder).parameters.items()
            if name not in ("input_shape", "input_dtype", "num_classes", "mean", "std")
        }  # fmt: skip
        assert settings == defaults, entry.name
