"""The loss that labels and outputs require, and labels that do not fit the loss of a model."""

import dataclasses

import keras
import pytest
import tf_keras

from orbit_runner.tasks.keras.examples import Labels
from orbit_runner.tasks.keras.label_checks import LossKind, check_labels, default_loss, loss_kinds
from orbit_runner.tasks.keras.outputs import Output
from tests.support.problems import raises

_PACKAGES = {"2": tf_keras, "3": keras}
_CLASSES = Labels((), "int64", 0, 2)
_LOGITS = Output("", (3,), "float32", "linear")
_SPARSE = "sparse_categorical_crossentropy"


def _sparse(from_logits):
    return {"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": from_logits}}


@pytest.mark.parametrize(
    ("labels", "outputs", "expected"),
    [
        (_CLASSES, _LOGITS, _sparse(True)),
        (_CLASSES, Output("", (3,), "float32", "softmax"), _sparse(False)),
        (Labels((1,), "int32", 0, 2), Output("", (3,), "float32", "softmax"), _sparse(False)),
        (Labels((), "int32", 0, 1), Output("", (1,), "float32", "sigmoid"), "binary_crossentropy"),
    ],
)
def test_default_loss_follows_from_labels_and_outputs(labels, outputs, expected):
    assert default_loss({"": labels}, [outputs]) == expected
    assert default_loss({"y": labels}, [outputs]) == expected


@pytest.mark.parametrize(
    ("labels", "outputs"),
    [
        (_CLASSES, [Output("", (3,), "float32")]),
        (Labels((), "int64", 0, 9), [_LOGITS]),
        (Labels((), "int32", 0, 1), [Output("", (1,), "float32", "linear")]),
        (_CLASSES, [Output("kind", (3,), "float32"), Output("size", (1,), "float32")]),
    ],
)
def test_ambiguous_loss_is_an_error_with_candidates(labels, outputs):
    with raises("not-set", "task.loss"):
        default_loss({"": labels}, outputs)


def _kinds(make, outputs):
    """Returns what a loss of each package is for."""
    return [loss_kinds(make(package.losses), outputs) for package in _PACKAGES.values()]


@pytest.mark.parametrize(
    ("make", "width", "kind"),
    [
        (lambda losses: _SPARSE, 3, LossKind("", "sparse")),
        (lambda losses: losses.SparseCategoricalCrossentropy(True), 3,
         LossKind("", "sparse", True)),
        (lambda losses: losses.SparseCategoricalCrossentropy(ignore_class=-1), 3,
         LossKind("", "sparse", False, -1)),
        (lambda losses: losses.CategoricalCrossentropy(from_logits=True), 3,
         LossKind("", "categorical", True)),
        (lambda losses: losses.BinaryFocalCrossentropy(), 1, LossKind("", "binary")),
        (lambda losses: "crossentropy", 3, LossKind("", "categorical")),
        (lambda losses: "crossentropy", 1, LossKind("", "binary")),
        (lambda losses: lambda y, p: p, 3, LossKind()),
        (lambda losses: None, 3, LossKind()),
    ],
)  # fmt: skip
def test_kind_of_a_loss(make, width, kind):
    for kinds in _kinds(make, [Output("", (width,), "float32")]):
        assert dataclasses.replace(kinds[""], name="") == kind


@pytest.mark.parametrize(
    "make",
    [
        lambda losses: {"kind": _SPARSE, "size": "mse"},
        lambda losses: [_SPARSE, losses.MeanSquaredError()],
        lambda losses: {"kind": losses.SparseCategoricalCrossentropy()},
        lambda losses: [_SPARSE, None],
    ],
)
def test_kinds_of_losses_by_output(make):
    outputs = [Output("kind", (3,), "float32"), Output("size", (1,), "float32")]
    for kinds in _kinds(make, outputs):
        assert {name: kind.kind for name, kind in kinds.items()} == {"kind": "sparse", "size": ""}


@pytest.mark.parametrize(
    ("item", "labels", "outputs"),
    [
        (_SPARSE, Labels((), "int64", 0, 9), _LOGITS),
        (_SPARSE, Labels((), "int64", -1, 2), _LOGITS),
        ("binary_crossentropy", Labels((), "int64", 0, 2), Output("", (1,), "float32", "sigmoid")),
    ],
)
def test_labels_that_do_not_fit_the_loss_are_an_error(item, labels, outputs):
    with raises("model-mismatch", "task.loss"):
        check_labels(loss_kinds(item, [outputs]), {"": labels}, [outputs])


@pytest.mark.parametrize(
    ("item", "labels", "outputs"),
    [
        (_SPARSE, Labels((), "int64"), _LOGITS),  # The range is unknown.
        (_SPARSE, Labels((1,), "int64", 0, 2), _LOGITS),
        (tf_keras.losses.SparseCategoricalCrossentropy(ignore_class=-1),
         Labels((), "int64", -1, 2), _LOGITS),
        ("mse", _CLASSES, _LOGITS),  # Keras computes it.
        (lambda y, p: p, Labels((), "int64", 0, 9), _LOGITS),
    ],
)  # fmt: skip
def test_labels_that_fit_the_loss_are_accepted(item, labels, outputs):
    check_labels(loss_kinds(item, [outputs]), {"": labels}, [outputs])


def test_labels_are_checked_by_output():
    outputs = [Output("kind", (3,), "float32"), Output("size", (1,), "float32")]
    kinds = loss_kinds({"kind": _SPARSE, "size": "mse"}, outputs)
    wrong, number = Labels((), "int64", 0, 3), Labels((), "float32", 0, 9)
    for labels in ({"size": number, "kind": wrong}, {"0": wrong, "1": number}):
        with raises("model-mismatch", "task.loss.kind"):
            check_labels(kinds, labels, outputs)
    with raises("model-mismatch", "task.model"):
        check_labels(loss_kinds("mse", outputs[:1]), {"sise": number}, outputs[:1])
    for labels in ({"sise": number}, {"0": wrong, "1": number, "2": number}):
        with raises("model-mismatch", "task.model"):
            check_labels(kinds, labels, outputs)
    with raises("model-mismatch", "task.model"):
        check_labels(loss_kinds("mse", [_LOGITS]), {"kind": wrong, "size": number}, [_LOGITS])


def test_probabilities_from_a_linear_layer_are_a_warning(capsys):
    losses = tf_keras.losses
    check_labels(loss_kinds(_SPARSE, [_LOGITS]), {"": _CLASSES}, [_LOGITS])
    assert "set from_logits: true, or add a softmax or sigmoid" in capsys.readouterr().err
    kinds = loss_kinds(losses.SparseCategoricalCrossentropy(from_logits=True), [_LOGITS])
    check_labels(kinds, {"": _CLASSES}, [_LOGITS])
    assert capsys.readouterr().err == ""
