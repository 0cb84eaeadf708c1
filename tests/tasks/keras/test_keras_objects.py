"""Optimizers, losses and metrics of Keras that a program passes as objects, as settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import pytest
import tf_keras
from official.modeling.optimization import OptimizationConfig, OptimizerFactory, optimizer_factory

from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.optimizers import Optimization, OptimizerChoice
from orbit_runner.tasks.keras.keras_names import item_problems, keras_classes
from orbit_runner.tasks.keras.keras_objects import (
    is_same_optimizer,
    loss_setting,
    metric_settings,
    optimizer_setting,
)
from orbit_runner.tasks.keras.losses import make_loss
from orbit_runner.tasks.keras.outputs import Outputs
from orbit_runner.tasks.keras.passed_objects import FUNCTIONS
from orbit_runner.tasks.keras.trained_arrays import Labels
from tests.support.problems import raises

optimizers = tf_keras.optimizers
schedules = tf_keras.optimizers.schedules
losses = tf_keras.losses
metrics = tf_keras.metrics
# Objects are made in the tests, because they start TensorFlow.
_Make = Callable[[], Any]


def _constant(rate: float) -> dict[str, Any]:
    return {"type": "constant", "constant": {"learning_rate": rate}}


@pytest.mark.parametrize(
    ("make", "kind", "settings"),
    [
        (lambda: optimizers.Adam(1e-3), "adam_experimental", {}),
        (lambda: optimizers.legacy.Adam(1e-3, beta_1=0.8), "adam", {"beta_1": 0.8}),
        (lambda: optimizers.SGD(1e-3, momentum=0.9, nesterov=True), "sgd_experimental",
         {"momentum": 0.9, "nesterov": True}),
        (lambda: optimizers.legacy.SGD(1e-3, decay=0.1), "sgd", {"decay": 0.1}),
        (lambda: optimizers.AdamW(1e-3, global_clipnorm=1.0), "adamw_experimental",
         {"weight_decay": 0.004}),
        (lambda: optimizers.legacy.RMSprop(1e-3, rho=0.8), "rmsprop", {"rho": 0.8}),
        (lambda: optimizers.legacy.Adagrad(1e-3, clipnorm=2.0), "adagrad", {"clipnorm": 2.0}),
        (lambda: optimizers.Adafactor(1e-3), "adafactor_keras", {}),
    ],
)  # fmt: skip
def test_optimizer_is_the_section_of_its_class(
    make: _Make, kind: str, settings: dict[str, Any]
) -> None:
    optimizer = make()
    section = optimizer_setting(optimizer)
    chosen = {"type": kind, **({kind: settings} if settings else {})}
    assert section == {"optimizer": chosen, "learning_rate": _constant(0.001)}

    factory = OptimizerFactory(OptimizationConfig(section))
    built = factory.build_optimizer(factory.build_learning_rate())
    assert type(built) is type(optimizer)
    ours, given = built.get_config(), optimizer.get_config()
    assert ours.keys() == given.keys()
    assert {name for name in given if given[name] != ours[name]} <= {"name", "learning_rate"}


def test_each_class_is_the_one_that_model_garden_builds() -> None:
    choice = OptimizerChoice()
    for kind in OptimizerChoice.choices():
        path = type(getattr(choice, kind)).keras_class
        built = optimizer_factory.LEGACY_OPTIMIZERS_CLS[kind]
        # Those that Model Garden lists, but does not include, are strings.
        is_of_keras = getattr(built, "__module__", "").startswith("tf_keras.")
        assert bool(path) == is_of_keras
        if path:
            package = optimizers.legacy if path.startswith("legacy.") else optimizers
            assert getattr(package, path.rpartition(".")[2]) is built


@pytest.mark.parametrize(
    "make",
    [
        lambda: schedules.CosineDecay(0.1, 100, alpha=0.1),
        lambda: schedules.PiecewiseConstantDecay([10, 20], [0.1, 0.01, 0.001]),
        lambda: schedules.ExponentialDecay(0.1, 10, 0.9, staircase=True),
        lambda: schedules.PolynomialDecay(0.1, 50, power=2.0, cycle=True),
    ],
    ids=["cosine", "stepwise", "exponential", "polynomial"],
)
def test_schedule_is_the_section_with_the_same_rates(make: _Make) -> None:
    schedule = make()
    section = optimizer_setting(optimizers.SGD(schedule))
    built = OptimizerFactory(OptimizationConfig(section)).build_learning_rate()
    for step in (0, 1, 10, 11, 49, 50, 99, 200):
        assert float(built(step)) == float(schedule(step))


def _optimization(kind: str, rate: float, **settings: float) -> Optimization:
    path = "trainer.optimizer_config"
    values = {
        f"{path}.optimizer.type": kind,
        f"{path}.learning_rate": f"{{type: constant, constant: {{learning_rate: {rate}}}}}",
        f"{path}.warmup": "{type: linear, linear: {warmup_steps: 10}}",
        **{f"{path}.optimizer.{kind}.{name}": str(value) for name, value in settings.items()},
    }
    flags = tuple((f"--{name}", name, value) for name, value in values.items())
    return resolve(Request(experiment="digits", flags=flags)).config.trainer.optimizer_config


@pytest.mark.parametrize(
    ("make", "kind", "settings", "is_same"),
    [
        (lambda: keras.optimizers.SGD(0.1), "sgd_experimental", {}, True),
        (lambda: optimizers.SGD(0.1), "sgd_experimental", {}, True),
        (lambda: optimizers.SGD(0.1), "sgd", {}, True),
        (lambda: optimizers.SGD(0.1), "sgd", {"decay": 0.1}, False),
        (lambda: optimizers.SGD(0.1), "sgd_experimental", {"momentum": 0.9}, False),
        (lambda: optimizers.SGD(0.2), "sgd_experimental", {}, False),
        (lambda: optimizers.SGD(schedules.CosineDecay(0.1, 9)), "sgd_experimental", {}, False),
        (lambda: keras.optimizers.Adam(0.1), "adam", {}, True),
        (lambda: keras.optimizers.Adam(0.1, beta_1=0.8), "adam", {"beta_1": 0.8}, True),
        (lambda: keras.optimizers.Adam(0.1), "adam", {"clipnorm": 1.0}, False),
        (lambda: keras.optimizers.Adam(0.1), "sgd_experimental", {}, False),
        (lambda: keras.optimizers.Adam(0.1), "lamb", {}, False),
    ],
)  # fmt: skip
def test_config_has_the_same_optimizer_as_an_object(
    make: _Make, kind: str, settings: dict[str, float], is_same: bool
) -> None:
    config = _optimization(kind, 0.1, **settings)
    assert is_same_optimizer(optimizer_setting(make()), config) == is_same


@pytest.mark.parametrize("make", [schedules.CosineDecay, schedules.PolynomialDecay])
def test_config_has_the_same_schedule_as_an_object(make: Callable[..., Any]) -> None:
    setting = optimizer_setting(optimizers.SGD(make(0.1, 100)))
    kind = setting["learning_rate"]["type"]
    config = _optimization("sgd_experimental", 0.1)
    other = type(config.learning_rate)()
    block = getattr(other, kind).replace(**setting["learning_rate"][kind])
    same = config.replace(learning_rate=other.replace(type=kind, **{kind: block}))
    assert is_same_optimizer(setting, same)
    assert not is_same_optimizer(optimizer_setting(optimizers.SGD(make(0.1, 99))), same)


@pytest.mark.parametrize(
    "make",
    [
        lambda: optimizers.RMSprop(),
        lambda: optimizers.AdamW(),
        lambda: optimizers.Adam(use_ema=True),
        lambda: optimizers.Adam(weight_decay=0.1),
        lambda: optimizers.SGD(schedules.InverseTimeDecay(0.1, 10, 0.5)),
        lambda: optimizers.SGD(schedules.CosineDecay(0.1, 10, warmup_target=0.2)),
        lambda: metrics.AUC(),
    ],
)
def test_what_no_setting_describes_is_refused_by_name(make: _Make) -> None:
    with raises("not-supported", "optimizer"):
        optimizer_setting(make())


@pytest.mark.parametrize(
    ("make", "item"),
    [
        (lambda: losses.Huber(), "huber"),
        (lambda: losses.Huber(0.5), {"name": "huber", "delta": 0.5}),
        (lambda: losses.SparseCategoricalCrossentropy(from_logits=True),
         {"name": "sparse_categorical_crossentropy", "from_logits": True}),
    ],
)  # fmt: skip
def test_loss_is_its_name_with_the_arguments_that_are_not_defaults(make: _Make, item: Any) -> None:
    assert loss_setting(make()) == item


@pytest.mark.parametrize("name", keras_classes("losses"))
def test_each_loss_of_keras_is_its_name(name: str) -> None:
    cls = getattr(losses, keras_classes("losses")[name].partition(":")[2])
    assert loss_setting(cls()) == name


_ARGUMENTS: dict[str, dict[str, Any]] = {
    "iou": {"num_classes": 3, "target_class_ids": [0]},
    "binary_iou": {"target_class_ids": [0]},
    "one_hot_iou": {"num_classes": 3, "target_class_ids": [0]},
    "mean_iou": {"num_classes": 3},
    "one_hot_mean_iou": {"num_classes": 3},
    "mean_relative_error": {"normalizer": [1.0, 2.0]},
    "sensitivity_at_specificity": {"specificity": 0.5},
    "specificity_at_sensitivity": {"sensitivity": 0.5},
    "precision_at_recall": {"recall": 0.5},
    "recall_at_precision": {"precision": 0.5},
}


@pytest.mark.parametrize("name", keras_classes("metrics"))
def test_each_metric_of_keras_is_an_item_without_problems(name: str) -> None:
    cls = getattr(metrics, keras_classes("metrics")[name].partition(":")[2])
    (item,) = metric_settings([cls(**_ARGUMENTS.get(name, {}))])
    assert (item if isinstance(item, str) else item["name"]) == name
    assert list(item_problems("metrics", item)) == []
    assert "as" not in (item if isinstance(item, dict) else {})


def test_names_of_metrics_are_kept_and_numbered_as_in_keras() -> None:
    given = [
        metrics.AUC(),
        metrics.AUC(num_thresholds=50),
        metrics.AUC(curve="PR", name="pr"),
        "accuracy",
        metrics.SparseCategoricalAccuracy(name="acc"),
    ]
    assert metric_settings(given) == [
        "auc",
        {"name": "auc", "num_thresholds": 50, "as": "auc_1"},
        {"name": "auc", "curve": "PR", "as": "pr"},
        "accuracy",
        {"name": "sparse_categorical_accuracy", "as": "acc"},
    ]


class _Scaled(losses.Loss):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return self.factor * losses.mse(y_true, y_pred)


class Scaled(_Scaled):
    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "factor": self.factor}


class Counted(metrics.Sum):
    def __init__(self, factor: float = 1.0, name: str | None = None, dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.factor = factor


def test_loss_of_the_user_is_its_class_if_its_config_has_the_arguments() -> None:
    assert loss_setting(Scaled(2.0)) == {"name": f"{__name__}:Scaled", "factor": 2.0}


def test_other_loss_of_the_user_is_passed_as_an_object_that_stays_as_it_is() -> None:
    loss = _Scaled(3.0)
    item = loss_setting(loss)
    assert item == "__main__:_Scaled"
    assert FUNCTIONS["__main__:_Scaled"] is loss

    labels = Labels((2,), "float32")
    outputs = Outputs((2,), "float32")
    built = make_loss(item, labels, outputs)
    values = built(tf_keras.backend.constant([[1.0, 1.0]]), tf_keras.backend.constant([[0.0, 0.0]]))
    assert values.numpy().tolist() == [3.0]
    assert loss.reduction == "auto"


def test_metric_that_cannot_be_built_again_is_refused() -> None:
    with raises("not-supported", "metrics"):
        metric_settings([Counted(2.0)])


def test_losses_that_add_up_a_batch_and_base_classes_are_refused() -> None:
    with raises("not-supported", "loss"):
        loss_setting(losses.Huber(reduction="sum"))
    for metric in (metrics.Mean(), metrics.Accuracy()):
        with raises("not-supported", "metrics"):
            metric_settings([metric])
