"""Losses, metrics, optimizers and schedules of Keras as settings, and back as equal objects."""

import inspect
import json
import re
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.tasks.keras_items import build_items, item_problems, items_of, split_item
from orbit_runner.tf_internals import function_arguments
from tests.support.problems import check, raises

_PACKAGES = {"2": tf_keras, "3": keras}
_MODELS = "tests.support.keras_models"
_NO_ITEMS = (
    *("Loss", "Reduction", "Metric", "MeanMetricWrapper", "LearningRateSchedule"),
    *("Optimizer", "LossScaleOptimizer", "MultiOptimizer", "OptimizerMap"),
)
_DECAY = {"initial_learning_rate": 0.5, "decay_steps": 9}
_REQUIRED = {
    "IoU": {"num_classes": 3, "target_class_ids": [0]},
    "MeanIoU": {"num_classes": 3},
    "MeanRelativeError": {"normalizer": [1.0, 2.0]},
    "OneHotIoU": {"num_classes": 3, "target_class_ids": [0]},
    "OneHotMeanIoU": {"num_classes": 3},
    "PrecisionAtRecall": {"recall": 0.5},
    "RecallAtPrecision": {"precision": 0.5},
    "SensitivityAtSpecificity": {"specificity": 0.5},
    "SpecificityAtSensitivity": {"sensitivity": 0.5},
    "CosineDecay": _DECAY,
    "CosineDecayRestarts": {"initial_learning_rate": 0.5, "first_decay_steps": 9},
    "ExponentialDecay": {**_DECAY, "decay_rate": 0.5},
    "InverseTimeDecay": {**_DECAY, "decay_rate": 0.5},
    "PiecewiseConstantDecay": {"boundaries": [3, 5], "values": [0.5, 0.25, 0.125]},
    "PolynomialDecay": _DECAY,
}
# Values of arguments whose default is a name, a tuple or None.
_OTHERS = {
    "average": "macro",
    "class_aggregation": "variance_weighted_average",
    "class_id": 1,
    "clipnorm": 0.5,
    "curve": "PR",
    "ema_overwrite_frequency": 7,
    "gradient_accumulation_steps": 2,
    "ignore_class": -1,
    "loss_scale_factor": 8.0,
    "name": "other",
    "num_labels": 3,
    "reduction": "sum",
    "summation_method": "majoring",
    "target_class_ids": [1],
    "threshold": 0.25,
    "top_k": 2,
    "warmup_target": 0.75,
    "weight_decay": 0.25,
}
# An argument that `get_config` of Adam of Keras 2 lacks.
_NOT_IN_CONFIG = ("adaptive_epsilon",)


class _Class(NamedTuple):
    version: str
    kind: str  # losses, metrics, optimizers, optimizers.legacy or optimizers.schedules
    name: str

    def __str__(self):
        return f"{self.version} {self.kind} {self.name}"

    @property
    def cls(self):
        return getattr(_module(self.version, self.kind), self.name)

    @property
    def arguments(self):
        """The required arguments, and others that differ from the defaults."""
        return {**dict(self._others()), **_REQUIRED.get(self.name, {})}

    def _others(self):
        for name, parameter in inspect.signature(self.cls).parameters.items():
            default = parameter.default
            if name in _NOT_IN_CONFIG:
                continue
            if type(default) is bool:
                yield name, not default
            elif type(default) is int:
                yield name, default + 1
            elif type(default) is float:
                yield name, 0.375 if default >= 0 else -0.375
            elif name in _OTHERS and default is not inspect.Parameter.empty:
                yield name, _OTHERS[name]


def _module(version, kind):
    module = _PACKAGES[version]
    for part in kind.split("."):
        module = getattr(module, part)
    return module


def _classes(*kinds):
    return [
        _Class(version, kind, name)
        for version in _PACKAGES
        for kind in kinds
        if (version, kind) != ("3", "optimizers.legacy")
        for name, value in vars(_module(version, kind)).items()
        if isinstance(value, type) and name not in _NO_ITEMS
        if (version, kind, name) != ("2", "optimizers", "Nadam")  # Is refused.
    ]


def _rebuilt(value, kind, version):
    """Returns what a config with an object builds."""
    setting = json.loads(json.dumps(items_of(value, "argument")))
    assert not list(item_problems(setting, "argument"))
    return build_items(setting, kind, _PACKAGES[version], "task.argument")


def _settings_of(value):
    """Returns all arguments of an object, also those of the function that it calls."""
    config = {**function_arguments(value), **value.get_config()}
    if isinstance(config.get("name"), str):  # Keras numbers names in a process.
        config["name"] = re.sub(r"_\d+$", "", config["name"])
    return {name: json.loads(json.dumps(part, default=_plain)) for name, part in config.items()}


def _plain(value):
    if hasattr(value, "get_config"):
        return {type(value).__name__: value.get_config()}
    return value.__name__ if callable(value) else np.asarray(value).tolist()


@pytest.mark.parametrize(
    "case", _classes("losses", "metrics", "optimizers", "optimizers.legacy"), ids=str
)
def test_object_of_keras_is_a_setting_that_builds_an_equal_one(case):
    kind = case.kind.partition(".")[0]
    for arguments in (_REQUIRED.get(case.name, {}), case.arguments):
        original = case.cls(**arguments)
        built = _rebuilt(original, kind, case.version)
        assert built is not original
        assert type(built) is type(original)
        assert _settings_of(built) == _settings_of(original)
        item = items_of(original, "argument")
        assert item["class_name"].removeprefix("legacy.") == case.name
        values = {name: item["config"].get(name) for name in arguments}
        assert values == json.loads(json.dumps(arguments))


@pytest.mark.parametrize("version", _PACKAGES)
def test_object_that_was_used_is_a_setting(version):
    package = _PACKAGES[version]
    layers = package.layers
    model = package.Sequential([package.Input([4]), layers.Dense(3, activation="softmax")])
    top = package.metrics.SparseTopKCategoricalAccuracy(2)
    loss = package.losses.SparseCategoricalCrossentropy()
    model.compile("adam", loss, metrics=[top])
    model.fit(np.ones([8, 4], np.float32), np.zeros([8]), verbose=0)
    optimizer = items_of(model.optimizer, "optimizer")
    items = [items_of(value, "x") for value in (loss, top)]
    names = [split_item(item)[0] for item in (optimizer, *items)]
    assert names == ["Adam", "SparseCategoricalCrossentropy", "SparseTopKCategoricalAccuracy"]


@pytest.mark.parametrize("case", _classes("optimizers.schedules"), ids=str)
def test_schedule_is_a_setting_with_the_same_rates(case):
    for arguments in (_REQUIRED[case.name], case.arguments):
        schedule = case.cls(**arguments)
        optimizer = _PACKAGES[case.version].optimizers.SGD(schedule)
        settings = items_of(optimizer, "optimizer")["config"]["learning_rate"]["config"]
        assert {name: settings[name] for name in arguments} == arguments
        built = _rebuilt(optimizer, "optimizers", case.version)._learning_rate
        assert type(built) is type(schedule)
        for step in (0, 1, 3, 9, 10, 11, 49, 50, 99, 200):
            np.testing.assert_equal(float(built(step)), float(schedule(step)))


@pytest.mark.parametrize("version", _PACKAGES)
def test_names_of_variables_without_weight_decay_are_kept(version):
    optimizer = _PACKAGES[version].optimizers.AdamW()
    optimizer.exclude_from_weight_decay(var_names=["gamma", "bias"])
    config = items_of(optimizer, "optimizer")["config"]
    assert sorted(config["exclude_from_weight_decay"]) == ["bias", "gamma"]
    built = _rebuilt(optimizer, "optimizers", version)
    assert items_of(built, "optimizer")["config"] == config
    make = {"2": tf.Variable, "3": keras.Variable}[version]
    for name in ("bias", "kernel"):
        assert built._use_weight_decay(make(0.0, name=name)) == (name == "kernel")


@pytest.mark.parametrize("version", _PACKAGES)
def test_names_of_metrics_are_those_of_fit(version):
    metrics = _PACKAGES[version].metrics
    _PACKAGES[version].backend.clear_session()
    passed = [
        metrics.AUC(),
        metrics.AUC(num_thresholds=50),
        metrics.AUC(curve="PR", name="pr"),
        "accuracy",
        metrics.SparseCategoricalAccuracy(name="acc"),
    ]
    names = [getattr(metric, "name", metric) for metric in passed]
    assert names == ["auc", "auc_1", "pr", "accuracy", "acc"]
    built = _rebuilt(passed, "metrics", version)
    assert [getattr(metric, "name", metric) for metric in built] == names
    # The process may have built others before.
    other = _rebuilt([metrics.AUC()], "metrics", version)
    assert [metric.name for metric in other] == ["auc"]


@pytest.mark.parametrize("version", _PACKAGES)
def test_lists_and_mappings_by_output_are_kept(version):
    package = _PACKAGES[version]
    loss = {"kind": "mse", "size": package.losses.Huber(0.5), "other": None}
    built = _rebuilt(loss, "losses", version)
    assert (built["kind"], built["other"]) == ("mse", None)
    assert type(built["size"]) is package.losses.Huber
    metrics = [[package.metrics.AUC(), "accuracy"], []]
    (first, name), none = _rebuilt(metrics, "metrics", version)
    assert (type(first), name, none) == (package.metrics.AUC, "accuracy", None)


def test_no_setting_is_none():
    for setting in (None, "", (), [], {}):
        assert build_items(setting, "metrics", keras, "task.metrics") is None


def _loss(package):
    """Returns a class of losses whose config lacks an argument."""

    class Scaled(package.losses.Loss):
        def __init__(self, factor=1.0, **kwargs):
            super().__init__(**kwargs)
            self.factor = factor

        def call(self, y_true, y_pred):
            return self.factor * (y_true - y_pred)

    return Scaled


def _metric(package):
    """Returns a class of metrics whose config lacks an argument."""

    class Scaled(package.metrics.Mean):
        def __init__(self, factor=1.0, name="own", dtype=None):
            super().__init__(name=name, dtype=dtype)
            self.factor = factor

    return Scaled


class Scaled(_loss(tf_keras)):
    """A loss whose config has its arguments."""

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


class _Optimizer3(keras.optimizers.SGD):
    def __init__(self, factor=1.0, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor


def test_object_of_a_class_of_the_user_is_its_class_with_its_config():
    item = items_of(Scaled(2.0), "loss")
    assert item["class_name"] == f"{__name__}:Scaled"
    assert item["config"]["factor"] == 2.0
    built = _rebuilt(Scaled(2.0), "losses", "2")
    assert type(built) is Scaled
    assert built.factor == 2.0


def test_nadam_of_keras_2_is_refused():
    with raises("not-supported", "task.optimizer"):
        build_items("nadam", "optimizers", tf_keras, "task.optimizer")
    assert build_items("legacy.Nadam", "optimizers", tf_keras, "task.optimizer")


@pytest.mark.parametrize(("make", "kind"), [(_loss, "losses"), (_metric, "metrics")])
@pytest.mark.parametrize("version", _PACKAGES)
def test_object_whose_config_lacks_an_argument_stays_as_it_is(version, make, kind):
    """Its class would have the default of the argument."""
    original = make(_PACKAGES[version])(2.0)
    assert _rebuilt(original, kind, version).factor == 2.0


def test_optimizer_whose_config_lacks_an_argument_is_refused():
    with raises("not-supported", "optimizer"):
        items_of(_Optimizer3(2.0), "optimizer")
    with raises("not-supported", "optimizer"):
        items_of(tf_keras.optimizers.Adam(adaptive_epsilon=True), "optimizer")


@pytest.mark.parametrize("version", _PACKAGES)
def test_function_is_its_name(version):
    from tests.support import keras_models

    assert items_of(keras_models.squared, "loss") == f"{_MODELS}:squared"
    assert _rebuilt(keras_models.squared, "losses", version) is keras_models.squared

    def local(y_true, y_pred):
        return y_true - y_pred

    assert _rebuilt(local, "losses", version) is local


@pytest.mark.parametrize(
    ("setting", "kind", "code", "path"),
    [
        ("mean_squared_eror", "losses", "unknown-name", "task.x"),
        ({"out": ["mae", "acuracy"]}, "metrics", "unknown-name", "task.x.out[1]"),
        ("adm", "optimizers", "unknown-name", "task.x"),
        ({"class_name": "AUC"}, "optimizers", "unknown-name", "task.x"),
        ({"class_name": "Huber", "config": {"delt": 2}}, "losses", "bad-arguments", "task.x"),
        ([{"class_name": "AUC", "config": {"curve": "X"}}], "metrics", "bad-arguments",
         "task.x[0]"),
        ({"class_name": "SGD", "config": {"rate": 1}}, "optimizers", "bad-arguments", "task.x"),
        ({"class_name": "SGD", "config": {"learning_rate": {"class_name": "CosineDcay"}}},
         "optimizers", "unknown-name", "task.x.config.learning_rate"),
        ({"class_name": "SGD", "config": {"learning_rate": {"class_name": "CosineDecay"}}},
         "optimizers", "bad-arguments", "task.x.config.learning_rate"),
        (f"{_MODELS}:compiledd", "losses", "import-failed", "task.x"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("version", _PACKAGES)
def test_what_keras_does_not_know_is_an_error(setting, kind, code, path, version):
    with raises(code, path):
        build_items(setting, kind, _PACKAGES[version], "task.x")


@pytest.mark.parametrize("value", [{"kind": [None, 3]}, object()])
def test_other_values_are_refused(value):
    with raises("wrong-type", "metrics"):
        items_of(value, "metrics")


@pytest.mark.parametrize(
    ("setting", "problems"),
    [
        ([{"class_name": "Huber", "delta": 0.5}], [("unknown-name", "task.loss[0]")]),
        ({"a": {"class_name": "Huber", "config": 3}}, [("wrong-type", "task.loss.a")]),
        (["no_such_module:f", "mse", 3],
         [("import-failed", "task.loss[0]"), ("wrong-type", "task.loss[2]")]),
        (f"{_MODELS}:squard", [("import-failed", "task.loss")]),
        ("__main__:lost", []),  # Found when it is built; other processes read the config, too.
        ({"a": None, "b": "mse"}, []),
    ],
)  # fmt: skip
def test_wrong_forms_are_found_in_the_config(setting, problems):
    check(item_problems(setting, "task.loss"), *problems)
