"""The signature of an exported Keras model."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence

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

    arguments = [
        tf.TensorSpec([None, *shape], dtype, name=name)
        for name, (shape, dtype) in zip(argument_names(names), inputs.values(), strict=True)
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


def argument_names(names: Sequence[str]) -> list[str]:
    """Returns the names of the arguments of a signature, which are identifiers, for inputs."""
    identifiers: list[str] = []
    for index, name in enumerate(names):
        text = re.sub(r"\W", "_", name, flags=re.ASCII)
        is_usable = text.isidentifier() and not keyword.iskeyword(text) and text not in identifiers
        identifiers.append(text if is_usable else f"input_{index}")
    return identifiers
