"""Signatures of a Transformer: text to text, and ids to ids."""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from orbit_runner.data.text.tokenizer.graph_tokenizer import GraphTokenizer
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary
from orbit_runner.tasks.serving import Serving
from orbit_runner.tf_internals import unpadded_decoding_scope

TEXT, TOKENS = "text", "tokens"
_ONLY_SAVED_MODEL = (
    "translation is a beam search over sentences of any length around the network, which alone "
    "gives no translations, and only a SavedModel can contain both"
)


def translation_serving(
    model: tf_keras.Model, vocabulary: Vocabulary | None, max_length: int
) -> Serving:
    """Returns the signature `tokens` and, if there is a vocabulary, `text` as the default.

    `tokens` maps `inputs`, int32 [batch, length], each row ended by `EOS` and padded with 0, to
    `outputs`, int32 [batch, tokens], and `scores`, float32 [batch], the log probabilities divided
    by the length penalty. `text` maps `text`, string [batch], to `translations`, string [batch],
    and `scores`. Longer texts are cut to `max_length` tokens. `vocabulary` is None if the model
    only knows ids.
    """

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32, name="inputs")])
    def tokens(inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return translate(model, inputs)

    if vocabulary is None:
        return Serving({TOKENS: tokens}, default=TOKENS, only_saved_model=_ONLY_SAVED_MODEL)
    tokenizer = GraphTokenizer(vocabulary)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def text(text: tf.Tensor) -> dict[str, tf.Tensor]:
        translated = translate(model, tokenizer.encode(text, max_length))
        return {
            "translations": tokenizer.decode(translated["outputs"]),
            "scores": translated["scores"],
        }

    return Serving(
        {TEXT: text, TOKENS: tokens},
        default=TEXT,
        resources=[tokenizer],
        only_saved_model=_ONLY_SAVED_MODEL,
    )


def translate(model: tf_keras.Model, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
    """Translates int32 [batch, length] of any size, even if the model decodes with fixed shapes.

    Returns `outputs`, int32 [batch, tokens], and `scores`, float32 [batch].
    """
    # Only TPUs need a known number of rows, and a served model need not run on one.
    with unpadded_decoding_scope(model):
        decoded = model({"inputs": inputs}, training=False)
    return {"outputs": decoded["outputs"], "scores": tf.cast(decoded["scores"], tf.float32)}
