"""Every optimizer and learning rate schedule of Keras 3 and Keras 2 in a run, beside `fit`."""

import dataclasses
import functools

import numpy as np
import pytest

from tests.support import fit as fits
from tests.support.fit import BATCH, BFLOAT16, PACKAGES, ROWS, Tolerance, assert_equal
from tests.support.fit_table import (
    Cell,
    Item,
    case_of,
    check,
    items,
    reason_of,
)

# Optimizers and schedules.

_NOT_OPTIMIZERS = ("Optimizer", "LossScaleOptimizer", "MultiOptimizer", "OptimizerMap")
_OPTIONS = {
    "plain": {},
    "clipnorm": {"clipnorm": 0.1},
    "clipvalue": {"clipvalue": 0.05},
    "global_clipnorm": {"global_clipnorm": 0.1},
    "weight_decay": {"weight_decay": 0.1},
    "average": {"use_ema": True, "ema_momentum": 0.9},
    "overwritten average": {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 20},
    # Those of Keras 3 only.
    "accumulation": {"gradient_accumulation_steps": 2},
    "loss scale": {"loss_scale_factor": 8.0},
}
OPTIMIZERS = [*items("optimizers", _NOT_OPTIMIZERS)]


def _with_optimizer(version, make, dtype="float32", **changes):
    """Returns a training with an optimizer, of a model of a precision."""
    cell = Cell("classes")

    def model(package):
        policy = dtype if version == "3" else package.mixed_precision.Policy(dtype)
        layers = package.layers
        return package.Sequential(
            [
                package.Input([4]),
                layers.Dense(4, activation="tanh", dtype=policy),
                layers.Dense(3, activation="softmax", dtype=policy),
            ]
        )

    def compiled(package):
        loss = "sparse_categorical_crossentropy"
        return {"loss": loss, "metrics": ["accuracy"], "optimizer": make(package)}

    case = case_of(version, cell, compiled)
    return dataclasses.replace(case, model=model, **changes)


def _rated(item, package, rate=0.02, **arguments):
    return item.make(package.optimizers, learning_rate=rate, **arguments)


# Each optimizer has one of the options.
@pytest.mark.sample(2)
@pytest.mark.alternating
@pytest.mark.parametrize("options", _OPTIONS)
@pytest.mark.parametrize("item", OPTIMIZERS, ids=str)
def test_option_of_each_optimizer_is_that_of_fit(tmp_path, item, options):
    def make(package):
        try:
            return _rated(item, package, **_OPTIONS[options])
        except (TypeError, ValueError):  # Keras has no such option.
            return _rated(item, package)

    check(_with_optimizer(item.version, make), tmp_path, reason=reason_of(item))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Adam", "Nadam"])
def test_legacy_optimizer_is_that_of_fit(tmp_path, name):
    item = Item("2", name)
    make = lambda package: item.make(package.optimizers.legacy, learning_rate=0.02)  # noqa: E731
    check(_with_optimizer("2", make), tmp_path)


def _several_optimizers(package):
    optimizers = package.optimizers
    first = optimizers.OptimizerMap(optimizers.SGD(0.1), {".*bias": optimizers.Adam(0.01)})
    return optimizers.MultiOptimizer(first)


def _scaled(package):
    module = package.optimizers if package is PACKAGES["3"] else package.mixed_precision
    inner = package.optimizers.SGD(0.1)
    return module.LossScaleOptimizer(inner, initial_scale=1e3, dynamic_growth_steps=7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "make"),
    [("3", _several_optimizers), ("3", _scaled), ("2", _scaled)],
    ids=["several optimizers", "3 loss scale", "2 loss scale"],
)
def test_optimizer_of_optimizers_is_that_of_fit(tmp_path, version, make):
    form = "function" if make is _several_optimizers else "arguments"
    check(_with_optimizer(version, make), tmp_path, form=form)


_FLOAT16 = Tolerance(2e-3, 5e-4)
_PRECISIONS = {"mixed_bfloat16": BFLOAT16, "mixed_float16": _FLOAT16}


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("dtype", _PRECISIONS)
@pytest.mark.parametrize("name", ["SGD", "Adam"])
@pytest.mark.parametrize("version", PACKAGES)
def test_mixed_precision_is_that_of_fit(tmp_path, version, name, dtype):
    item = Item(version, name)
    case = _with_optimizer(version, functools.partial(_rated, item), dtype)
    check(case, tmp_path, _PRECISIONS[dtype])


_SCHEDULES = {
    "CosineDecay": {
        "initial_learning_rate": 0.0, "decay_steps": 30, "alpha": 0.1, "warmup_steps": 9,
        "warmup_target": 0.2,
    },
    "PolynomialDecay": {
        "initial_learning_rate": 0.1, "decay_steps": 30, "power": 2.0, "cycle": True
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("name", _SCHEDULES)
@pytest.mark.parametrize("version", PACKAGES)
def test_schedule_is_that_of_fit(tmp_path, version, name):
    """`test_keras_items.py` tests the rates of each schedule."""

    def make(package):
        schedule = getattr(package.optimizers.schedules, name)(**_SCHEDULES[name])
        return _rated(Item(version, "Adam"), package, schedule)

    check(_with_optimizer(version, make), tmp_path)


# Forms in which losses, metrics and optimizers are given.


def _in_form(form, package):
    """Returns the arguments of `compile` in a form."""
    losses, metrics, optimizers = package.losses, package.metrics, package.optimizers
    module = package.__name__
    objects = losses.Huber(), metrics.MeanAbsoluteError(), optimizers.Adam()
    serialized = [
        {key: kind.serialize(value)[key] for key in ("class_name", "config")}
        for kind, value in zip((losses, metrics, optimizers), objects, strict=True)
    ]
    names = [f"{module}.losses:Huber", f"{module}.metrics:MeanAbsoluteError"]
    parts = {
        "names": ("huber", "MeanAbsoluteError", "adam"),
        "objects": objects,
        "serialized": serialized,
        "by module": (*names, f"{module}.optimizers:Adam"),
    }
    loss, metric, optimizer = parts[form]
    return {"loss": loss, "metrics": [metric], "optimizer": optimizer}


_FORMS = ("names", "objects", "serialized", "by module")


@pytest.mark.slow
@pytest.mark.parametrize("version", PACKAGES)
def test_forms_of_loss_metrics_and_optimizer_have_the_same_weights(tmp_path, version):
    cell = Cell("numbers")
    fingerprints = {}
    for form in _FORMS:
        case = case_of(version, cell, functools.partial(_in_form, form))
        fingerprints[form] = fits.train(case, tmp_path / form).fingerprint
    case = case_of(version, cell, functools.partial(_in_form, "objects"))
    fingerprints["compile"] = fits.train(case, tmp_path / "compile", "compile").fingerprint
    assert len({*fingerprints.values()}) == 1, fingerprints
    assert_equal(fits.train(case, tmp_path / "again"), fits.fit(case))


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("form", ["arguments", "compile"])
@pytest.mark.parametrize("optimizer", ["adam", "RMSprop"])
@pytest.mark.parametrize("version", PACKAGES)
def test_name_of_an_optimizer_has_the_defaults_of_its_keras(tmp_path, version, optimizer, form):
    case = _with_optimizer(version, lambda package: optimizer)
    check(case, tmp_path, form=form)


@pytest.mark.slow
@pytest.mark.parametrize("version", PACKAGES)
def test_order_of_a_shuffled_run_changes_nothing_else(tmp_path, version):
    """`fit` gets the examples in the order of the run."""
    from orbit_runner.data.order.epochs import ShuffledOrder

    case = _with_optimizer(version, functools.partial(_rated, Item(version, "Adam")))
    order = ShuffledOrder(ROWS, 0)(np.arange(BATCH * fits.STEPS)).examples
    shuffled = dataclasses.replace(case, settings={"task.train_data.shuffle_buffer_size": 100})
    expected = fits.fit(dataclasses.replace(case, data=case.data.rows(np.asarray(order))))
    assert_equal(fits.train(shuffled, tmp_path), expected)
