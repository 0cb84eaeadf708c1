"""The signature of an exported Keras model."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf
import tf_keras

from orbit_runner.tasks.serving import Serving, named_function

PREDICT = "predict"
OUTPUTS, PROBABILITIES, CLASS = "outputs", "probabilities", "class"
_X = "x"


def make_serving(
    model: tf_keras.Model,
    specs: Mapping[str, tuple[tuple[int, ...], str]],
    kind: str,
    *,
    from_logits: bool,
) -> Serving:
    """Returns the signature `predict` of a model.

    It takes `x`, or the inputs by their names, and returns `outputs`. If the loss is for classes,
    it also returns `probabilities`, and `class`, the number of the most probable class. `specs` are
    the shapes and types of the arrays, and `kind` is that of the loss.
    """
    inputs = {path: spec for path, spec in specs.items() if path.partition(".")[0] == _X}
    names = [path.partition(".")[2] or _X for path in inputs]
    single = list(inputs) == [_X]

    def predict(*values: tf.Tensor) -> dict[str, tf.Tensor]:
        features = values[0] if single else dict(zip(names, values, strict=True))
        outputs = tf.cast(model(features, training=False), tf.float32)
        return {OUTPUTS: outputs, **_class_outputs(outputs, kind, from_logits)}

    # Inputs of a signature have names that are identifiers.
    arguments = [
        tf.TensorSpec([None, *shape], dtype, name=_identifier(name, index))
        for index, (name, (shape, dtype)) in enumerate(zip(names, inputs.values(), strict=True))
    ]
    return Serving({PREDICT: named_function(predict, arguments)}, default=PREDICT)


def _class_outputs(outputs: tf.Tensor, kind: str, from_logits: bool) -> dict[str, tf.Tensor]:
    if kind == "binary":
        return {PROBABILITIES: tf.sigmoid(outputs) if from_logits else outputs}
    if kind not in ("sparse", "categorical"):
        return {}
    return {
        PROBABILITIES: tf.nn.softmax(outputs) if from_logits else outputs,
        CLASS: tf.argmax(outputs, axis=-1),
    }


def _identifier(name: str, index: int) -> str:
    return name if name.isidentifier() else f"input_{index}"
