"""The signature of an exported Keras model."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf
import tf_keras

from orbit_runner.tasks.keras.label_checks import LossKind
from orbit_runner.tasks.keras.outputs import as_passed, outputs_by_name
from orbit_runner.tasks.serving import Serving, argument_names, named_function

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors

PREDICT = "predict"
OUTPUTS, PROBABILITIES, CLASS, LABEL = "outputs", "probabilities", "class", "label"
_X = "x"


def make_serving(
    model: tf_keras.Model,
    specs: Mapping[str, tuple[tuple[int, ...], str]],
    kinds: Mapping[str, LossKind],
    classes: Mapping[str, Sequence[str]] = types.MappingProxyType({}),
) -> Serving:
    """Returns the signature `predict` of a model.

    It takes `x`, or the inputs by their names, and returns `outputs`. If the loss is for classes,
    it also returns `probabilities`, `class`, the number of the most probable class, and `label`,
    its name, if it has one. Of a model with several outputs, it returns these for each output:
    `NAME_outputs`, `NAME_class`.

    `specs` are the shapes and types of the arrays. `kinds` are the kinds of the losses by the name
    of the output; the name of a single tensor is "". `classes` are the
    names of the classes by the name of the output.
    """
    inputs = {path: spec for path, spec in specs.items() if path.partition(".")[0] == _X}
    names = [path.partition(".")[2] or _X for path in inputs]
    single = list(inputs) == [_X]

    def predict(*values: tf.Tensor) -> dict[str, tf.Tensor]:
        features = values[0] if single else as_passed(dict(zip(names, values, strict=True)))
        return _answers(model(features, training=False), kinds, classes)

    arguments = [
        tf.TensorSpec([None, *shape], dtype, name=name)
        for name, (shape, dtype) in zip(argument_names(names), inputs.values(), strict=True)
    ]
    labels = {CLASS: list(classes[""])} if "" in kinds and classes.get("") else {}
    function = named_function(predict, arguments)
    return Serving({PREDICT: function}, default=PREDICT, labels=labels)


def _answers(
    returned: Tensors,
    kinds: Mapping[str, LossKind],
    classes: Mapping[str, Sequence[str]],
) -> dict[str, tf.Tensor]:
    by_name = {"": returned} if "" in kinds else outputs_by_name(returned, [*kinds])
    answers: dict[str, tf.Tensor] = {}
    for name, output in by_name.items():
        outputs = tf.cast(output, tf.float32)
        kind = kinds[name]
        results = {OUTPUTS: outputs, **_class_outputs(outputs, kind.kind, kind.from_logits)}
        number = _class_number(results)
        if classes.get(name) and number is not None:
            results[LABEL] = tf.gather(tf.constant([*classes[name]]), number)
        prefix = f"{name}_" if name else ""
        answers |= {f"{prefix}{key}": value for key, value in results.items()}
    return answers


def _class_outputs(outputs: tf.Tensor, kind: str, from_logits: bool) -> dict[str, tf.Tensor]:
    if kind == "binary":
        return {PROBABILITIES: tf.sigmoid(outputs) if from_logits else outputs}
    if kind not in ("sparse", "categorical"):
        return {}
    return {
        PROBABILITIES: tf.nn.softmax(outputs) if from_logits else outputs,
        CLASS: tf.argmax(outputs, axis=-1),
    }


def _class_number(results: Mapping[str, tf.Tensor]) -> tf.Tensor | None:
    """Returns the number of the class of each row, None if the results have no class."""
    probabilities = results.get(PROBABILITIES)
    if CLASS in results or probabilities is None:
        return results.get(CLASS)
    if probabilities.shape.rank != 2 or probabilities.shape[1] != 1:
        return None
    return tf.cast(probabilities[:, 0] > 0.5, tf.int32)
