"""Metrics by the names of Keras: their values for each kind of labels, weights and replicas."""
# ruff: noqa: E501 (one line a case)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from sklearn import metrics as reference

from orbit_runner.errors import SettingError
from orbit_runner.tasks.keras.metrics import make_metrics
from orbit_runner.train.evaluator import value_of
from tests.support.digits import digits_config
from tests.support.toy import make_strategy, run

_RNG = np.random.default_rng(4)
LABELS = _RNG.integers(0, 3, 40).astype(np.int32)
LOGITS = (_RNG.normal(size=(40, 3)) + np.eye(3)[LABELS]).astype(np.float32)
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
BEST = LOGITS.argmax(axis=1)
_CLASSIFIER: dict[str, Any] = {
    "kind": "sparse", "from_logits": True, "label_shape": (), "output_shape": (3,),
}  # fmt: skip


def _value(item: Any, labels: Any, outputs: Any, weights: Any = None, **settings: Any) -> float:
    (metric,) = make_metrics([item], **{**_CLASSIFIER, **settings})
    sample_weight = None if weights is None else tf.constant(weights, tf.float32)
    metric.update_state(tf.constant(labels), tf.constant(outputs), sample_weight=sample_weight)
    return float(value_of(metric))


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("accuracy", reference.accuracy_score(LABELS, BEST)),
        ("sparse_categorical_accuracy", reference.accuracy_score(LABELS, BEST)),
        ("categorical_accuracy", reference.accuracy_score(LABELS, BEST)),
        ({"name": "f1_score", "average": "macro"}, reference.f1_score(LABELS, BEST, average="macro")),
        ({"name": "F1Score", "average": "weighted"}, reference.f1_score(LABELS, BEST, average="weighted")),
        ({"name": "top_k_categorical_accuracy", "k": 2}, reference.top_k_accuracy_score(LABELS, LOGITS, k=2)),
        ({"name": "sparse_top_k_categorical_accuracy", "k": 2}, reference.top_k_accuracy_score(LABELS, LOGITS, k=2)),
        ("categorical_crossentropy", reference.log_loss(LABELS, PROBABILITIES.astype(float))),
        ({"name": "sparse_categorical_crossentropy", "from_logits": True}, reference.log_loss(LABELS, PROBABILITIES.astype(float))),
        ({"name": "precision", "class_id": 1, "top_k": 1}, reference.precision_score(LABELS == 1, BEST == 1)),
        ({"name": "tests.support.keras_models:LargestOutput"}, LOGITS.max(axis=1).mean()),
    ],
)  # fmt: skip
def test_value_of_a_classifier_is_that_of_scikit_learn(item: Any, expected: float) -> None:
    found = _value(item, LABELS, LOGITS)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    # Rows that only pad a batch have weight 0, and do not count.
    padded = np.concatenate([LABELS, [0, 0]]), np.concatenate([LOGITS, np.full([2, 3], 9.0)])
    weights = [1.0] * len(LABELS) + [0.0, 0.0]
    np.testing.assert_allclose(
        _value(item, padded[0], padded[1].astype(np.float32), weights), expected, rtol=1e-5
    )


def test_auc_of_each_class_is_close_to_scikit_learn() -> None:
    item = {"name": "auc", "multi_label": True, "num_thresholds": 2000}
    expected = reference.roc_auc_score(LABELS, PROBABILITIES, multi_class="ovr")

    np.testing.assert_allclose(_value(item, LABELS, LOGITS), expected, atol=2e-3)


@pytest.mark.parametrize(
    ("kind", "from_logits", "labels", "outputs", "expected"),
    [
        ("categorical", False, np.eye(3)[LABELS], PROBABILITIES, (LABELS == BEST).mean()),
        ("binary", True, np.array([0, 1, 1]), np.array([[-0.1], [0.1], [-2.0]]), 2 / 3),
        ("binary", False, np.array([[0], [1], [1]]), np.array([[0.4], [0.6], [0.2]]), 2 / 3),
        ("", False, np.array([0.0, 1.0]), np.array([[0.2], [0.7]]), 1.0),
    ],
)
def test_accuracy_fits_labels_and_outputs(
    kind: str, from_logits: bool, labels: Any, outputs: Any, expected: float
) -> None:
    found = _value(
        "accuracy",
        labels.astype(np.float32),
        outputs.astype(np.float32),
        kind=kind,
        from_logits=from_logits,
        label_shape=labels.shape[1:],
        output_shape=outputs.shape[1:],
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("item", ["accuracy", {"name": "f1_score", "average": "macro"}, "r2_score"])
def test_value_of_mirrored_replicas_is_that_of_one(item: Any) -> None:
    expected = _value(item, LABELS, LOGITS)
    strategy = make_strategy("mirrored2")
    with strategy.scope():
        (metric,) = make_metrics([item], **_CLASSIFIER)

    def step() -> None:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        metric.update_state(tf.constant(LABELS)[replica::2], tf.constant(LOGITS)[replica::2])

    tf.function(lambda: strategy.run(step))()
    np.testing.assert_allclose(value_of(metric), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("f1_score", "f1_score returns [3] numbers, expected one\nset average: macro"),
        ({"name": "auc", "curve": "X"}, "auc: "),
        ("tests.support.keras_models:squared", "is not a subclass of keras.metrics.Metric"),
        ({"name": "tests.support.keras_models:LargestOutput", "x": 1}, "unexpected keyword"),
    ],
)
def test_unusable_metric_is_an_error(item: Any, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        make_metrics(["mae", item], **_CLASSIFIER)
    assert caught.value.path == "task.metrics[1]"
    assert message in str(caught.value)


def test_name_of_a_metric_can_be_set() -> None:
    items = ["mae", {"name": "mae", "as": "other"}, "AUC"]

    assert [one.name for one in make_metrics(items, **_CLASSIFIER)] == ["mae", "other", "auc"]


@pytest.mark.slow
def test_image_classification_takes_more_metrics_and_keeps_its_weights(tmp_path: Any) -> None:
    items = "[auc, {name: f1_score, average: macro}]"
    with_metrics, logs = run(digits_config(task__metrics=items), tmp_path / "a")
    without, plain = run(digits_config(), tmp_path / "b")

    assert {"auc", "f1_score"} == logs.keys() - plain.keys()
    assert 0.5 < logs["f1_score"] <= 1
    assert logs["accuracy"] == plain["accuracy"]
    assert _all_equal(with_metrics, without)


def _all_equal(one: tf_keras.Model, other: tf_keras.Model) -> bool:
    pairs = zip(one.get_weights(), other.get_weights(), strict=True)
    return all(left.tobytes() == right.tobytes() for left, right in pairs)
