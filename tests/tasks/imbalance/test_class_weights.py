"""Weights of classes in the loss: their values, the loss, the runs, and bad input."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn.utils.class_weight import compute_class_weight

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.inspection.experiment import inspect_experiment
from orbit_runner.tasks.base import WeightedLabels, training_labels
from orbit_runner.tasks.image_classification.task import ImageClassificationTask
from orbit_runner.tasks.imbalance.classes import Classes, class_weights, classes_of_labels
from orbit_runner.tasks.keras.task import KerasTask
from orbit_runner.tasks.tabular.task import TabularTask
from tests.support.digits import digits_config
from tests.support.keras_models import keras_config
from tests.support.problems import pairs, raises
from tests.support.tables import table_config
from tests.support.texts import text_config, write_texts
from tests.support.toy import run, run_and_resume

LABELS = np.array([0, 0, 0, 0, 2, 2, 1])


def test_balanced_weights_are_those_of_scikit_learn():
    weights = class_weights("balanced", classes_of_labels(LABELS, ["a", "b", "c"]))
    expected = compute_class_weight("balanced", classes=np.arange(3), y=LABELS)
    assert [*weights] == ["a", "b", "c"]
    np.testing.assert_allclose([*weights.values()], expected)
    left = class_weights("balanced", classes_of_labels(LABELS), np.array([0, 4]))
    expected = compute_class_weight("balanced", classes=np.arange(3), y=LABELS[[1, 2, 3, 5, 6]])
    np.testing.assert_allclose([*left.values()], expected)
    # A class without examples has the weight 1.
    weights = class_weights("balanced", Classes(np.array([0, 0, 2]), ["a", "b", "c"]))
    assert weights == {"a": 0.75, "b": 1.0, "c": 1.5}


@pytest.mark.parametrize(
    "labels", [LABELS[:, np.newaxis], LABELS.astype(np.float32), np.eye(3)[LABELS]]
)
def test_forms_of_labels(labels):
    classes = classes_of_labels(labels)
    np.testing.assert_array_equal(classes.numbers, LABELS)
    assert classes.names == ["0", "1", "2"]


@pytest.mark.parametrize("labels", [np.array([0.5, 1]), np.array([-1, 1]), np.zeros((2, 3))])
def test_labels_that_are_no_classes_have_no_weights(labels):
    with raises("bad-data"):
        classes_of_labels(labels)


def test_weights_of_numbers_of_shares_and_of_examples():
    by_class = class_weights({False: 1, "b": 4}, Classes(np.array([0, 1]), ["false", "b"]))
    numbers, shares = tf.constant([0, 1, 1]), tf.constant([[1, 0], [0, 1], [0.5, 0.5]])
    np.testing.assert_allclose(training_labels(numbers, None, by_class).weights, [1, 4, 4])
    np.testing.assert_allclose(training_labels(shares, None, by_class).weights, [1, 4, 2.5])
    labels = training_labels(numbers, tf.constant([0.0, 2.0, 1.0]), by_class)
    np.testing.assert_allclose(labels.weights, [0, 8, 4])
    np.testing.assert_allclose(labels.counts, [0, 2, 1])
    assert training_labels(numbers, None, {}) is numbers


def _check_training_loss(task, labels, logits):
    """The loss is Keras's: the weighted sum by the number of examples; metrics are as without."""
    weights = tf.constant([1.0, 4.0, 0.5])
    weighted = WeightedLabels(labels, weights, tf.ones_like(weights))
    losses = task.example_losses(labels, logits)
    expected = float(tf.reduce_sum(losses * weights)) / 3
    np.testing.assert_allclose(task.build_losses(weighted, logits), expected, rtol=1e-6)
    results = []
    for batch_labels in (labels, weighted):
        metrics = task.build_metrics()
        task.process_metrics(metrics, batch_labels, logits)
        results.append([float(metric.result()) for metric in metrics])
    assert results[0] == results[1]


def test_loss_and_metrics_of_images_texts_and_tables(shared_path, tmp_path):
    labels, logits = tf.constant([0, 1, 1]), tf.constant([[2.0, 1], [0.5, 0], [-1, 1]])
    write_texts(tmp_path)
    texts = TabularTask(text_config(tmp_path).task)
    _check_training_loss(texts, {"label": labels}, {"label": logits})
    _check_training_loss(ImageClassificationTask(digits_config().task), labels, logits)
    task = TabularTask(table_config(shared_path).task)
    _check_training_loss(task, {"y": labels}, {"y": logits})


def test_weights_of_each_task(shared_path, tmp_path):
    write_texts(tmp_path)
    adapters = {
        "text": TabularTask(text_config(tmp_path, task__class_weights="balanced").task),
        "table": TabularTask(table_config(shared_path, task__class_weights="balanced").task),
        "images": ImageClassificationTask(digits_config(task__class_weights="balanced").task),
        "keras": KerasTask(keras_config(task__class_weights="balanced").task),
    }
    for name, task in adapters.items():
        numbers = task.training_classes().numbers
        expected = compute_class_weight("balanced", classes=np.unique(numbers), y=numbers)
        np.testing.assert_allclose([*task.loss_by_class.values()], expected, err_msg=name)
    assert [*adapters["text"].loss_by_class] == ["english", "german"]
    assert [*adapters["table"].loss_by_class] == [*adapters["table"].fitted.classes]


@pytest.mark.slow
def test_class_weights_change_the_weights_of_a_run_that_resumes_exactly(shared_path, tmp_path):
    config = table_config(
        shared_path,
        task__class_weights="{big: 1, small: 5}",
        task__weight_column="w",
        trainer__gradient_accumulation_steps=2,
    )
    runs = run_and_resume(config, tmp_path, "mirrored2")
    plain, _ = run(config.replace(task=config.task.replace(class_weights="")), tmp_path / "plain")

    assert weights_fingerprint(runs.model) != weights_fingerprint(plain)


@pytest.mark.parametrize(
    ("value", "code", "path"),
    [
        ("balnced", "not-allowed", ""),
        ("{big: -1, small: 1}", "out-of-range", ".big"),
        ("{big: x, small: 1}", "out-of-range", ".big"),
        ("{big: .nan, small: 1}", "out-of-range", ".big"),
        ("{big: 0, small: 0}", "out-of-range", ""),
    ],
)
def test_value_that_is_not_a_weight_is_an_error(value, code, path):
    with raises(code, f"task.class_weights{path}"):
        table_config("a.csv", task__class_weights=value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("{big: 1, smal: 1}", "unknown class 'smal'; did you mean 'small'?\nclasses: big, small"),
        ("{big: 1}", "has no weight for class 'small'\nclasses: big, small"),
    ],
)
@pytest.mark.parametrize("setting", ["class_weights", "train_data.class_sampling"])
def test_weights_of_other_classes_are_errors_before_training(shared_path, setting, value, expected):
    changes = {f"task__{setting.replace('.', '__')}": value}
    config = table_config(shared_path, **changes)
    assert dict(pairs(config.data.problems())) == {setting: expected}


def test_numbers_have_no_weights_of_classes():
    with raises("not-supported", "task.class_weights"):
        table_config(
            "a.csv", task__target={"column": "y", "type": "regression"},
            task__class_weights="balanced",
        )  # fmt: skip


def test_inspection_has_the_weights(shared_path):
    config = table_config(shared_path, task__class_weights="{big: 1, small: 2.5}")
    inspection = inspect_experiment(config)
    assert inspection.as_dict()["loss_by_class"] == {"big": 1.0, "small": 2.5}
