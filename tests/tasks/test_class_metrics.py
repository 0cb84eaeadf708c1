"""Metrics of Keras for class numbers and logits, and for numbers; and their form in a config."""
# ruff: noqa: E501 (one line a case)

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics as reference

from orbit_runner.tasks.class_metrics import make_metric, metric_problems
from orbit_runner.tasks.image_classification.task import ImageClassificationTask
from orbit_runner.train.evaluator import value_of
from tests.support import problems
from tests.support.digits import digits_config
from tests.support.toy import make_strategy

_RNG = np.random.default_rng(4)
LABELS = _RNG.integers(0, 3, 40).astype(np.int32)
LOGITS = (_RNG.normal(size=(40, 3)) + np.eye(3)[LABELS]).astype(np.float32)
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
BEST = LOGITS.argmax(axis=1)
ENTROPY = reference.log_loss(LABELS, PROBABILITIES.astype(float))
NUMBERS = _RNG.normal(size=40).astype(np.float32)
GUESSES = (NUMBERS + _RNG.normal(size=40)).astype(np.float32)
LARGEST = "tests.support.keras_models:LargestOutput"


def _item(name, /, **config):
    return {"class_name": name, "config": config}


def _value(item, labels, outputs, weights=None):
    metric = make_metric(item, 3 if outputs.ndim == 2 else None, "task.metrics[0]")
    sample_weight = None if weights is None else tf.constant(weights, tf.float32)
    metric.update_state(tf.constant(labels), tf.constant(outputs), sample_weight)
    return float(value_of(metric))


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("accuracy", reference.accuracy_score(LABELS, BEST)),
        ("sparse_categorical_accuracy", reference.accuracy_score(LABELS, BEST)),
        ("CategoricalAccuracy", reference.accuracy_score(LABELS, BEST)),
        (_item("f1_score", average="macro"), reference.f1_score(LABELS, BEST, average="macro")),
        (_item("F1Score", average="weighted"), reference.f1_score(LABELS, BEST, average="weighted")),
        (_item("TopKCategoricalAccuracy", k=2), reference.top_k_accuracy_score(LABELS, LOGITS, k=2)),
        (_item("sparse_top_k_categorical_accuracy", k=2), reference.top_k_accuracy_score(LABELS, LOGITS, k=2)),
        ("categorical_crossentropy", ENTROPY),
        (_item("SparseCategoricalCrossentropy", from_logits=True), ENTROPY),
        (_item("precision", class_id=1, top_k=1), reference.precision_score(LABELS == 1, BEST == 1)),
        (_item("MeanIoU", num_classes=3, sparse_y_pred=False), reference.jaccard_score(LABELS, BEST, average="macro")),
        (_item(LARGEST), LOGITS.max(axis=1).mean()),
    ],
)  # fmt: skip
def test_value_for_classes_is_that_of_scikit_learn(item, expected):
    np.testing.assert_allclose(_value(item, LABELS, LOGITS), expected, rtol=1e-5)
    # Rows that only pad a batch have weight 0, and do not count.
    padded = np.concatenate([LABELS, [0, 0]]).astype(np.int32)
    outputs = np.concatenate([LOGITS, np.full([2, 3], 9.0, np.float32)])
    weights = [1.0] * len(LABELS) + [0.0, 0.0]
    np.testing.assert_allclose(_value(item, padded, outputs, weights), expected, rtol=1e-5)


def test_auc_of_each_class_is_close_to_scikit_learn():
    item = _item("AUC", multi_label=True, num_thresholds=2000)
    expected = reference.roc_auc_score(LABELS, PROBABILITIES, multi_class="ovr")

    np.testing.assert_allclose(_value(item, LABELS, LOGITS), expected, atol=2e-3)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("mse", reference.mean_squared_error(NUMBERS, GUESSES)),
        ("MeanAbsoluteError", reference.mean_absolute_error(NUMBERS, GUESSES)),
        ("r2_score", reference.r2_score(NUMBERS, GUESSES)),
        ("tests.support.keras_models:Gap", np.abs(NUMBERS - GUESSES).mean()),
    ],
)
def test_value_for_numbers_is_that_of_scikit_learn(item, expected):
    np.testing.assert_allclose(_value(item, NUMBERS, GUESSES), expected, rtol=1e-5)
    padded = np.concatenate([NUMBERS, [9.0]]).astype(np.float32)
    outputs = np.concatenate([GUESSES, [0.0]]).astype(np.float32)
    weights = [1.0] * len(NUMBERS) + [0.0]
    np.testing.assert_allclose(_value(item, padded, outputs, weights), expected, rtol=1e-5)


@pytest.mark.parametrize("item", ["accuracy", _item("f1_score", average="macro"), "r2_score"])
def test_value_of_mirrored_replicas_is_that_of_one(item):
    expected = _value(item, LABELS, LOGITS)
    strategy = make_strategy("mirrored2")
    with strategy.scope():
        metric = make_metric(item, 3, "task.metrics[0]")

    def step():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        metric.update_state(tf.constant(LABELS)[replica::2], tf.constant(LOGITS)[replica::2])

    tf.function(lambda: strategy.run(step))()
    np.testing.assert_allclose(value_of(metric), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("item", "num_classes", "code"),
    [
        ("f1_score", 3, "wrong-type"),
        ("aucc", 3, "unknown-name"),
        (_item("auc", curve="X"), 3, "bad-arguments"),
        (_item("accuracy", k=2), 3, "bad-arguments"),
        ("sparse_categorical_accuracy", None, "model-mismatch"),
        ("tests.support.keras_models:squared", 3, "import-failed"),
        (_item(LARGEST, x=1), 3, "bad-arguments"),
    ],
)
def test_unusable_metric_is_an_error(item, num_classes, code):
    with problems.raises(code, "task.metrics[1]"):
        make_metric(item, num_classes, "task.metrics[1]")


def test_name_of_a_metric_is_that_of_its_class_or_the_given_one():
    items = [
        "mae",
        _item("mae", name="other"),
        "AUC",
        _item("MeanIoU", num_classes=2),
        LARGEST,
    ]
    metric_names = [make_metric(item, None, "").name for item in items]
    names = ["mae", "other", "auc", "mean_iou", "largest_output"]
    assert metric_names == names


@pytest.mark.parametrize(
    ("item", "code"),
    [
        ({"name": "f1_score", "average": "macro"}, "not-set"),
        ({"class_name": "F1Score", "average": "macro"}, "unknown-name"),
        ({"class_name": "F1Score", "config": "macro"}, "wrong-type"),
        ("no_such_module:Metric", "import-failed"),
        ("Accuracy", "set-twice"),
        ("AUC", "set-twice"),
        (_item("F1Score", name="auc"), "set-twice"),
    ],
)
def test_wrong_form_and_taken_name_are_found_in_the_config(item, code):
    mistakes = metric_problems(["auc", item], taken=("accuracy",))
    problems.check(mistakes, (code, "metrics[1]"))


def test_evaluations_of_images_have_the_metrics_of_the_config():
    items = "[auc, {class_name: F1Score, config: {average: macro, name: macro_f1}}]"
    task = digits_config(task__metrics=items).task
    built = ImageClassificationTask(task).build_metrics(training=False)
    assert [metric.name for metric in built] == ["accuracy", "top_5_accuracy", "auc", "macro_f1"]
