"""Signatures of an exported model that classifies texts."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
import tf_keras

from orbit_runner.tasks.serving import Serving
from orbit_runner.tasks.tabular.texts import TextFit

TEXT, NAMES = "text", "class_names"


def text_serving(model: tf_keras.Model, fitted: TextFit, names: Sequence[str]) -> Serving:
    """Returns the signatures `text` (the default) and `class_names`.

    `text` maps `text`, string [batch], to `logits` and `probabilities`, float32 [batch, classes].
    `class_names` takes nothing, and returns `names`, string [classes].
    """
    tokenizer = fitted.make_tokenizer()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def text(text: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = model(fitted.encode(tokenizer, text), training=False)
        return {"logits": logits, "probabilities": tf.nn.softmax(logits)}

    @tf.function(input_signature=[])
    def class_names() -> dict[str, tf.Tensor]:
        return {"names": tf.constant(list(names), tf.string)}

    return Serving(
        {TEXT: text, NAMES: class_names},
        default=TEXT,
        resources=[tokenizer],
        labels={"class": list(names)},
    )
