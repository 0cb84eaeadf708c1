"""NumPy draws the operations that RandAugment and AutoAugment apply."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from official.vision.ops import augment

from orbit_runner.data.images import augment_policies
from orbit_runner.data.order import policy_draws
from tests.support.operations import apply_operation

_SIZE = (24, 20)
_RAND = {
    "num_layers": 2, "magnitude": 7.0, "cutout_const": 9.0, "translate_const": 8.0,
    "prob_to_apply": None, "exclude_ops": (),
}  # fmt: skip
_NAMES = ("num_layers", "magnitude", "prob_to_apply", "exclude_ops")
_EVERY = {
    *("AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "Color", "Contrast"),
    *("Brightness", "Sharpness", "ShearX", "ShearY", "TranslateX", "TranslateY", "Cutout"),
    "SolarizeAdd",
}


def _check(policy: Any, draw: Any, count: int, cutout: float, translate: float) -> set[str]:
    """Compares images with those to which the drawn operations were applied, by hand."""
    apply = tf.function(lambda image, number, epoch: policy(image, 5, number, epoch))
    pixels = np.random.default_rng(2).integers(0, 256, (*_SIZE, 3)).astype(np.uint8)
    image, names = tf.constant(pixels), set()
    for number in range(count):
        epoch = number % 3
        expected = image
        for text in draw(5, number, epoch, _SIZE):
            names.add(text.split(" ")[0])
            expected = apply_operation(expected, text, cutout, translate)
        found = apply(image, tf.constant(number, tf.int64), tf.constant(epoch, tf.int64))
        np.testing.assert_array_equal(found, expected, err_msg=str(draw(5, number, epoch, _SIZE)))
    return names


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, _EVERY),
        ({"prob_to_apply": 0.6, "num_layers": 3}, _EVERY),
        ({"exclude_ops": ("Cutout", "Rotate", "Color")}, _EVERY - {"Cutout", "Rotate", "Color"}),
    ],
)
def test_operations_of_rand_augment(changes: dict[str, Any], names: set[str]) -> None:
    settings = _RAND | changes
    options = {name: settings[name] for name in _NAMES}

    found = _check(
        augment_policies.rand_augment(**settings),
        lambda *key: policy_draws.rand_augment(*key, **options),
        120,
        settings["cutout_const"],
        settings["translate_const"],
    )

    assert found == names


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v0", "reduced_cifar10", "svhn", "simple", "test"])
def test_operations_of_auto_augment(name: str) -> None:
    found = _check(
        augment_policies.auto_augment(
            augmentation_name=name, cutout_const=9.0, translate_const=8.0
        ),
        lambda *key: policy_draws.auto_augment(*key, augmentation_name=name),
        80,
        9.0,
        8.0,
    )

    assert found <= {one for p in getattr(augment.AutoAugment, f"policy_{name}")() for one, *_ in p}
    assert len(found) > (1 if name == "test" else 4)


def test_operation_is_not_applied_with_probability_zero() -> None:
    options = {name: _RAND[name] for name in _NAMES} | {"prob_to_apply": 0.0}
    drawn = [policy_draws.rand_augment(5, n, 0, _SIZE, **options) for n in range(50)]
    assert drawn == [[]] * 50


def test_tables_are_those_of_model_garden() -> None:
    assert policy_draws._operations() == tuple(augment.RandAugment().available_ops)
    for name in ("v0", "test", "simple", "reduced_cifar10", "svhn", "reduced_imagenet"):
        expected = getattr(augment.AutoAugment, f"policy_{name}")()
        assert policy_draws._policies(name) == tuple(tuple(one) for one in expected)


def test_unknown_version_of_model_garden_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_draws, "_operations", lambda: None)
    options = {name: _RAND[name] for name in _NAMES}
    assert policy_draws.rand_augment(5, 1, 0, _SIZE, **options) is None
