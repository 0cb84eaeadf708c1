"""Every loss and metric of Keras, on each kind of labels, masks and weights, beside `evaluate`."""

# ruff: noqa: E501 (one line an argument)

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.errors import SettingError
from orbit_runner.tasks.keras.keras_names import find_class, keras_classes, split_item
from orbit_runner.tasks.keras.losses import make_loss
from orbit_runner.tasks.keras.metrics import make_metrics
from orbit_runner.tasks.keras.outputs import Outputs
from orbit_runner.tasks.keras.trained_arrays import labels_of
from orbit_runner.train.evaluator import value_of

_SIZE, _BATCH, _STEPS = 7, 4, 3
_RNG = np.random.default_rng(2)


@dataclasses.dataclass(frozen=True)
class Data:
    """Labels and outputs of a model. `kind` is that of the loss that fits them."""

    kind: str
    labels: np.ndarray
    outputs: np.ndarray

    @property
    def steps(self) -> tuple[int, ...]:
        """The shape of the mask."""
        return (_SIZE,) if self.outputs.ndim == 2 else (_SIZE, _STEPS)


def _probabilities(*shape: int) -> np.ndarray:
    values = _RNG.uniform(0.1, 1.0, shape).astype(np.float32)
    return values / values.sum(axis=-1, keepdims=True) if shape[-1] > 1 else values


_CLASSES, _STEP_CLASSES = np.arange(_SIZE) % 3, _RNG.integers(0, 3, (_SIZE, _STEPS))
_ONE_HOT, _STEP_ONE_HOT = np.eye(3)[_CLASSES], np.eye(3)[_STEP_CLASSES]
_YES, _STEP_YES = np.arange(_SIZE) % 2, _RNG.integers(0, 2, (_SIZE, _STEPS))
_P3, _P1 = _probabilities(_SIZE, 3), _probabilities(_SIZE, 1)
_STEP_P3, _STEP_P1 = _probabilities(_SIZE, _STEPS, 3), _probabilities(_SIZE, _STEPS, 1)
DATA = {
    "class numbers": Data("sparse", _CLASSES, _P3),
    "class numbers in a column": Data("sparse", _CLASSES[:, None].astype(np.int32), _P3),
    "one-hot": Data("categorical", _ONE_HOT.astype(np.float32), _P3),
    "one-hot integers": Data("categorical", _ONE_HOT.astype(np.int64), _P3),
    "yes or no": Data("binary", _YES, _P1),
    "yes or no in a column": Data("binary", _YES[:, None].astype(np.float32), _P1),
    "several of three": Data("binary", _RNG.integers(0, 2, (_SIZE, 3)).astype(np.float32), _P3),
    "numbers": Data("", _RNG.uniform(0.1, 2, _SIZE).astype(np.float32), _P1),
    "integers": Data("", _RNG.integers(1, 5, (_SIZE, 3)), _P3),
    "class numbers of steps": Data("sparse", _STEP_CLASSES, _STEP_P3),
    "one-hot steps": Data("categorical", _STEP_ONE_HOT.astype(np.float32), _STEP_P3),
    "yes or no of steps": Data("binary", _STEP_YES[..., None], _STEP_P1),
}
LOSSES: list[Any] = [
    *keras_classes("losses"),
    {"name": "binary_crossentropy", "from_logits": True, "label_smoothing": 0.1},
    {"name": "binary_focal_crossentropy", "apply_class_balancing": True, "alpha": 0.3, "gamma": 1},
    {"name": "categorical_crossentropy", "from_logits": True, "label_smoothing": 0.1},
    {"name": "categorical_crossentropy", "axis": 1},
    {"name": "categorical_focal_crossentropy", "alpha": 0.3, "gamma": 1.0},
    {"name": "cosine_similarity", "axis": 1},
    {"name": "huber", "delta": 0.2},
    {"name": "sparse_categorical_crossentropy", "from_logits": True},
    {"name": "sparse_categorical_crossentropy", "ignore_class": 0},
    {"name": "sparse_categorical_crossentropy", "ignore_class": -1},
]
_REQUIRED: dict[str, dict[str, Any]] = {
    "f1_score": {"average": "macro"},
    "fbeta_score": {"average": "weighted", "beta": 2.0},
    "iou": {"num_classes": 3, "target_class_ids": [0, 2], "sparse_y_pred": False},
    "mean_iou": {"num_classes": 3, "sparse_y_pred": False},
    "one_hot_iou": {"num_classes": 3, "target_class_ids": [0, 2]},
    "one_hot_mean_iou": {"num_classes": 3},
    "mean_relative_error": {"normalizer": [2.0]},
    "precision_at_recall": {"recall": 0.5},
    "recall_at_precision": {"precision": 0.5},
    "sensitivity_at_specificity": {"specificity": 0.5},
    "specificity_at_sensitivity": {"sensitivity": 0.5},
}
METRICS: list[Any] = [
    "accuracy",
    *({"name": name, **_REQUIRED.get(name, {})} for name in keras_classes("metrics")),
    {"name": "auc", "curve": "PR", "summation_method": "majoring", "num_thresholds": 20},
    {"name": "auc", "multi_label": True},
    {"name": "auc", "from_logits": True},
    {"name": "binary_accuracy", "threshold": 0.3},
    {"name": "binary_iou", "target_class_ids": [1], "threshold": 0.4},
    {"name": "f1_score", "average": "micro", "threshold": 0.4},
    {"name": "iou", "num_classes": 3, "target_class_ids": [1], "sparse_y_true": False, "sparse_y_pred": False},
    {"name": "mean_iou", "num_classes": 3, "sparse_y_pred": False, "ignore_class": 0},
    {"name": "mean_iou", "num_classes": 3},
    {"name": "precision", "class_id": 1, "top_k": 2},
    {"name": "recall", "thresholds": 0.3},
    {"name": "categorical_crossentropy", "label_smoothing": 0.1, "from_logits": True},
    {"name": "sparse_categorical_crossentropy", "ignore_class": 1},
    {"name": "sparse_top_k_categorical_accuracy", "k": 2},
    {"name": "top_k_categorical_accuracy", "k": 2},
    {"name": "r2_score", "class_aggregation": "variance_weighted_average", "num_regressors": 1},
    {"name": "cosine_similarity", "axis": 1},
]  # fmt: skip
# They compare class numbers; the runner gives one-hot labels to all others.
_TAKES_CLASSES = ("sparse_", "iou", "mean_iou", "accuracy")


class _WithMask(tf_keras.layers.Layer):
    """Returns its first input, with the second one as mask."""

    def call(self, inputs: Any) -> tf.Tensor:
        return inputs[0]

    def compute_mask(self, inputs: Any, mask: Any = None) -> tf.Tensor:
        return inputs[1]


def _mask(data: Data) -> np.ndarray:
    mask = np.arange(np.prod(data.steps)).reshape(data.steps) % 3 > 0
    mask[0] = True
    return mask


@functools.cache
def _identity(shape: tuple[int, ...], mask: tuple[int, ...] | None) -> tf_keras.Model:
    inputs = [tf_keras.Input(shape)]
    result = inputs[0]
    if mask is not None:
        inputs.append(tf_keras.Input(mask, dtype="bool"))
        result = _WithMask()(inputs)
    return tf_keras.Model(inputs, tf_keras.layers.Activation("linear")(result))


def _evaluate_keras(
    data: Data, labels: np.ndarray, mask: Any, weights: Any, **compiled: Any
) -> float:
    """Returns what `evaluate` would, by the same steps, but without its pipeline."""
    steps = None if mask is None else data.steps[1:]
    model = _identity(data.outputs.shape[1:], steps)
    model.compile(run_eagerly=True, **compiled)
    model.reset_metrics()
    for first in range(0, _SIZE, _BATCH):
        parts = (data.outputs, mask, labels, weights)
        x, m, y, w = (None if p is None else tf.constant(p[first : first + _BATCH]) for p in parts)
        found = model.test_step(([x] if m is None else [x, m], y, w))
    return float([*found.values()][-1])


def _batches(data: Data, mask: Any, weights: Any) -> Iterator[tuple[Any, Any, Any]]:
    for first in range(0, _SIZE, _BATCH):
        rows = slice(first, first + _BATCH)
        outputs = tf.constant(data.outputs[rows])
        if mask is not None:
            outputs._keras_mask = tf.constant(mask[rows])
        yield tf.constant(data.labels[rows]), outputs, None if weights is None else weights[rows]


def _evaluate_loss(item: Any, data: Data, mask: Any, weights: Any) -> float:
    loss = make_loss(item, labels_of([data.labels]), Outputs(data.outputs.shape[1:], "float32"))
    total = 0.0
    for labels, outputs, w in _batches(data, mask, weights):
        total += np.sum(loss(labels, outputs).numpy() * (1.0 if w is None else w))
    return total / _SIZE


def _evaluate_metric(item: Any, data: Data, mask: Any) -> float:
    (metric,) = make_metrics(
        [item],
        kind=data.kind,
        from_logits=False,
        label_shape=data.labels.shape[1:],
        output_shape=data.outputs.shape[1:],
        masked=mask is not None,
    )
    for labels, outputs, _ in _batches(data, mask, None):
        metric.update_state(labels, outputs)
    return float(value_of(metric))


def _keras_object(kind: str, item: Any, width: int = 3) -> Any:
    name, arguments = split_item(item)
    if name == "accuracy":
        return name
    reference = find_class(kind, name)
    assert reference is not None
    module = getattr(tf_keras, kind)
    if name == "auc" and arguments.get("multi_label"):
        arguments["num_labels"] = width
    return getattr(module, reference.partition(":")[2])(**arguments)


def _keras_value(compute: Any) -> float | None:
    """Returns what Keras computes, or None if it refuses."""
    try:
        return float(compute())
    except Exception:  # Keras raises whatever an op raises.
        return None


def _check_loss(item: Any, data: Data, mask: Any, weights: Any) -> bool:
    compute = lambda y: _evaluate_keras(  # noqa: E731
        data, y, mask, weights, loss=_keras_object("losses", item)
    )
    expected = _keras_value(lambda: compute(data.labels))
    try:
        found = _evaluate_loss(item, data, mask, weights)
    except SettingError:
        return False
    if expected is None:  # The runner also casts integer labels.
        expected = _keras_value(lambda: compute(data.labels.astype(np.float32)))
    assert expected is not None, f"Keras refuses it, got {found}"
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-7)
    return True


def _check_metric(item: Any, data: Data, mask: Any) -> bool:
    name, arguments = split_item(item)
    labels = data.labels
    takes_classes = name.startswith(_TAKES_CLASSES) and arguments.get("sparse_y_true", True)
    if data.kind == "sparse" and not takes_classes:
        labels = np.eye(3, dtype=np.float32)[labels.reshape(data.outputs.shape[:-1])]
    compute = lambda y, m: _evaluate_keras(  # noqa: E731
        data, y, m, None, metrics=[_keras_object("metrics", item, data.outputs.shape[-1])]
    )
    expected = _keras_value(lambda: compute(labels, mask))
    if expected is None:  # The runner also casts integer labels and masks.
        expected = (
            _keras_value(lambda: compute(labels.astype(np.float32), None)) if mask is None else None
        )
    try:
        found = _evaluate_metric(item, data, mask)
    except SettingError:
        return False
    if expected is None and mask is not None:
        return True
    assert expected is not None, f"Keras refuses it, got {found}"
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)
    return True


_FEW_LOSSES = ["mse", "sparse_categorical_crossentropy", *LOSSES[-2:]]
_FEW_METRICS = ["accuracy", {"name": "f1_score", "average": "macro"}, {"name": "auc"}, METRICS[-4]]


@pytest.mark.parametrize("name", ["class numbers", "yes or no", "class numbers of steps"])
def test_a_few_losses_and_metrics_are_those_of_keras(name: str) -> None:
    equal = _check_table(DATA[name], _FEW_LOSSES, _FEW_METRICS)

    assert equal >= 8  # The others are refused.


@pytest.mark.slow
@pytest.mark.parametrize("name", DATA)
def test_every_loss_and_metric_is_that_of_keras_or_refused(name: str) -> None:
    equal = _check_table(DATA[name], LOSSES, METRICS)

    assert equal >= 90  # The others are refused.


def _check_table(data: Data, losses: list[Any], metrics: list[Any]) -> int:
    """Returns how many cells have the value of Keras."""
    weights = (np.arange(_SIZE) % 3).astype(np.float32)
    equal = 0
    for mask in (None, _mask(data)):
        for item in losses:
            equal += sum(_check_loss(item, data, mask, w) for w in (None, weights))
        equal += sum(_check_metric(item, data, mask) for item in metrics)
    return equal
