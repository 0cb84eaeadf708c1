"""A Transformer as it is served: text to text, and ids to ids."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras

from orbit_runner.data.text.tokenizer.graph_tokenizer import GraphTokenizer
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary
from orbit_runner.tasks.serving import Serving

TEXT, TOKENS = "text", "tokens"


def signatures(model: tf_keras.Model, vocabulary: Vocabulary | None, max_length: int) -> Serving:
    """Makes the signatures.

    Args:
        model: The model, its weights restored.
        vocabulary: The sub-words; None where the model knows ids alone.
        max_length: The most tokens of a source; longer ones are cut.

    Returns:
        `tokens`, from `inputs`, int32 [batch, length], each row ended by `EOS` and padded with 0,
        to `outputs`, int32 [batch, tokens], and `scores`, float32 [batch], the log probabilities
        over the penalty for length. With a vocabulary `text`, the default then: from `text`, string
        [batch], to `translations`, string [batch], and `scores`.
    """

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32, name="inputs")])
    def tokens(inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return translate(model, inputs)

    if vocabulary is None:
        return Serving({TOKENS: tokens}, default=TOKENS)
    tokenizer = GraphTokenizer(vocabulary)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def text(text: tf.Tensor) -> dict[str, tf.Tensor]:
        found = translate(model, tokenizer.encode(text, max_length))
        return {"translations": tokenizer.decode(found["outputs"]), "scores": found["scores"]}

    return Serving({TEXT: text, TOKENS: tokens}, default=TEXT, resources=[tokenizer])


def translate(model: tf_keras.Model, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
    """Translates batches of any size, also with a model that decodes with fixed shapes.

    Args:
        model: The model.
        inputs: int32 [batch, length].

    Returns:
        `outputs`, int32 [batch, tokens], and `scores`, float32 [batch].
    """
    # TPUs need a known number of rows; what is served need not run on one.
    padded: Any = getattr(model, "_padded_decode", False)
    model._padded_decode = False
    try:
        found = model({"inputs": inputs}, training=False)
    finally:
        model._padded_decode = padded
    return {"outputs": found["outputs"], "scores": tf.cast(found["scores"], tf.float32)}
