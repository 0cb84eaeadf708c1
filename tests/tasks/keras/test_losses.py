"""Losses by the names of Keras: one value per example, and errors if they do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.errors import SettingError
from orbit_runner.tasks.keras.losses import make_loss
from orbit_runner.tasks.keras.outputs import Outputs
from orbit_runner.tasks.keras.trained_arrays import Labels

_HERE = "tests.support.keras_models"
_CLASSES = Labels((), "int64", 0, 2)
_LOGITS = Outputs((3,), "float32", "linear")


def _loss(item: Any, labels: Labels, outputs: Outputs) -> Any:
    return make_loss(item, labels, outputs)


@pytest.mark.parametrize(
    ("item", "reference"),
    [
        ("mse", tf_keras.losses.mean_squared_error),
        ("MeanAbsoluteError", tf_keras.losses.mean_absolute_error),
        ({"name": "huber", "delta": 0.5}, lambda y, p: tf_keras.losses.huber(y, p, delta=0.5)),
        (f"{_HERE}:squared", tf_keras.losses.mean_squared_error),
        ({"name": f"{_HERE}:squared", "factor": 2.0},
         lambda y, p: 2 * tf_keras.losses.mean_squared_error(y, p)),
        (f"{_HERE}:Squared", tf_keras.losses.mean_squared_error),
    ],
)  # fmt: skip
@pytest.mark.parametrize("flat", [False, True])
def test_loss_of_each_example_is_that_of_keras(item: Any, reference: Any, flat: bool) -> None:
    labels = np.array([[1.0], [2.0], [-3.0]], np.float32)
    outputs = np.array([[0.5], [2.0], [1.0]], np.float32)
    loss = _loss(item, Labels((1,), "float32", -3, 2), Outputs((1,), "float32"))

    found = loss(tf.constant(labels[:, 0] if flat else labels), tf.constant(outputs))
    np.testing.assert_allclose(found, reference(labels, outputs), rtol=1e-6)


def test_each_step_that_is_not_masked_has_the_same_weight() -> None:
    labels, outputs = tf.zeros([2, 3, 1]), tf.constant([[[1.0], [2.0], [9.0]], [[3.0]] * 3])
    loss = _loss("mse", Labels((3, 1), "float32", 0, 0), Outputs((3, 1), "float32"))

    np.testing.assert_allclose(loss(labels, outputs), [(1 + 4 + 81) / 3, 9.0], rtol=1e-6)
    outputs._keras_mask = tf.constant([[True, True, False], [True, True, True]])
    expected = (1 + 4 + 9 * 3) / 5
    losses = loss(labels, outputs)
    np.testing.assert_allclose(losses, [(1 + 4) * 2 / 5, 9 * 3 * 2 / 5], rtol=1e-6)
    np.testing.assert_allclose(np.mean(losses), expected, rtol=1e-6)
    # The second row is no example.
    losses = loss(labels, outputs, tf.constant([1.0, 0.0]))
    np.testing.assert_allclose(losses[0], (1 + 4) / 2, rtol=1e-6)


@pytest.mark.parametrize(
    ("labels", "outputs", "kind", "from_logits"),
    [
        (_CLASSES, _LOGITS, "sparse", True),
        (_CLASSES, Outputs((3,), "float32", "softmax"), "sparse", False),
        (Labels((), "int32", 0, 1), Outputs((1,), "float32", "sigmoid"), "binary", False),
    ],
)
def test_default_loss_follows_from_labels_and_outputs(
    labels: Labels, outputs: Outputs, kind: str, from_logits: bool
) -> None:
    loss = _loss("", labels, outputs)

    assert (loss.kind, loss.from_logits) == (kind, from_logits)


@pytest.mark.parametrize(
    ("labels", "outputs", "candidate"),
    [
        (_CLASSES, Outputs((3,), "float32", ""), "the same with from_logits: true"),
        (Labels((), "int32", 0, 1), Outputs((1,), "float32", "linear"), "binary_crossentropy, {"),
        (Labels((), "float32", 0, 9), Outputs((1,), "float32", "linear"), "mse, mae, huber"),
    ],
)
def test_ambiguous_loss_is_an_error_with_candidates(
    labels: Labels, outputs: Outputs, candidate: str
) -> None:
    with pytest.raises(SettingError) as caught:
        _loss("", labels, outputs)
    assert "do not determine it\ncandidates: " in str(caught.value)
    assert candidate in str(caught.value)


@pytest.mark.parametrize(
    ("item", "labels", "outputs", "message"),
    [
        ("sparse_categorical_crossentropy", Labels((), "int64", 0, 9), _LOGITS,
         "got labels int64 [batch] from 0 to 9, but the model has 3 outputs, for classes 0 to 2\n"
         "change the width of the last layer to 10, or the labels"),
        ("sparse_categorical_crossentropy", Labels((), "int64", -1, 2), _LOGITS,
         "expected class numbers starting at 0"),
        ("sparse_categorical_crossentropy", Labels((3,), "int64", 0, 1), _LOGITS,
         "for one-hot labels, use categorical_crossentropy"),
        ("sparse_categorical_crossentropy", Labels((), "float32", 0, 2), _LOGITS,
         "expected integers\nconvert them"),
        ("sparse_categorical_crossentropy", Labels((7,), "int64", 0, 2), _LOGITS,
         "expected one class number per output"),
        ("categorical_crossentropy", _CLASSES, _LOGITS,
         "for class numbers, use sparse_categorical_crossentropy"),
        ("mse", Labels((2,), "float32", 0, 1), _LOGITS,
         "got labels float32 [batch, 2] from 0 to 1 and outputs float32 [batch, 3], expected the "
         "same shape"),
        ("binary_crossentropy", Labels((), "int64", 0, 2), Outputs((1,), "float32", "sigmoid"),
         "expected 0 to 1"),
        (f"{_HERE}:classes", _CLASSES, _LOGITS, ""),
        (f"{_HERE}:LargestOutput", _CLASSES, _LOGITS, "is not a subclass of keras.losses.Loss"),
        (f"{_HERE}:compiledd", _CLASSES, _LOGITS, "does not exist; did you mean 'compiled'?"),
        ({"name": "huber", "delta": 1, "x": 2}, _CLASSES, _LOGITS, "huber: "),
        ({"name": "cosine_similarity", "axis": 0}, Labels((3,), "float32"), _LOGITS,
         "got axis: 0, expected an axis of one example: outputs are float32 [batch, 3]"),
        (f"{_HERE}:Summed", Labels((3,), "float32"), _LOGITS, "adds the losses of a batch"),
    ],
)  # fmt: skip
def test_loss_that_does_not_fit_is_an_error(
    item: Any, labels: Labels, outputs: Outputs, message: str
) -> None:
    if not message:  # Only the function itself knows what it accepts.
        _loss(item, labels, outputs)
        return
    with pytest.raises(SettingError) as caught:
        _loss(item, labels, outputs)
    assert caught.value.path == "task.loss"
    assert message in str(caught.value)


def test_probabilities_from_a_linear_layer_are_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _loss("sparse_categorical_crossentropy", _CLASSES, _LOGITS)
    assert "set from_logits: true, or add a softmax or sigmoid" in capsys.readouterr().err
    _loss({"name": "sparse_categorical_crossentropy", "from_logits": True}, _CLASSES, _LOGITS)
    assert capsys.readouterr().err == ""
