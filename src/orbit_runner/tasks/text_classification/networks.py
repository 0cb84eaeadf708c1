"""Networks that classify texts: a bag of words, and a Transformer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from orbit_runner.data.text.source import PAD
from orbit_runner.tasks.tabular.layers import TokenMean, mean_of_tokens
from orbit_runner.tasks.tabular.networks import hidden_layers

layers = tf_keras.layers


def bag_of_words(
    *,
    vocab_size: int,
    length: int,
    num_classes: int,
    embedding_width: int = 64,
    hidden_units: Sequence[int] = (),
    dropout_rate: float = 0.0,
) -> tf_keras.Model:
    """Returns the mean of the embeddings of all tokens, dense ReLU layers, and a classifier.

    The model maps tokens, int32 [batch, length] with 0 for padding, to logits, float32 [batch,
    num_classes]. For the settings, see `BagOfWordsConfig`. Dropout follows the mean and each dense
    layer.
    """
    tokens = tf_keras.Input((length,), dtype="int32", name="tokens")
    x = TokenMean(vocab_size, embedding_width, name="embedding")(tokens)
    if dropout_rate:
        x = layers.Dropout(dropout_rate, name="dropout")(x)
    x = hidden_layers(x, hidden_units, dropout_rate)
    return tf_keras.Model(tokens, _logits(x, num_classes), name="bag_of_words")


def transformer(
    *,
    vocab_size: int,
    length: int,
    num_classes: int,
    embedding_width: int = 64,
    num_layers: int = 2,
    num_attention_heads: int = 4,
    intermediate_size: int = 256,
    dropout_rate: float = 0.0,
) -> tf_keras.Model:
    """Returns Model Garden's Transformer encoder, the mean of its outputs, and a classifier.

    Inputs and outputs are those of `bag_of_words`. For the settings, see `TextTransformerConfig`.
    """
    # Layer names must not depend on what was built before in this process.
    tf_keras.backend.reset_uids()
    tokens = tf_keras.Input((length,), dtype="int32", name="tokens")
    encoder = TextEncoder(
        vocab_size,
        embedding_width,
        dropout_rate,
        name="encoder",
        num_layers=num_layers,
        num_attention_heads=num_attention_heads,
        intermediate_size=intermediate_size,
    )
    return tf_keras.Model(tokens, _logits(encoder(tokens), num_classes), name="transformer")


class TextEncoder(tf_keras.layers.Layer):
    """Embeddings, positions and the encoder of a Transformer, and the mean over all tokens."""

    def __init__(
        self, vocab_size: int, width: int, dropout_rate: float, *, name: str, **stack: Any
    ) -> None:
        from official.nlp.modeling import models
        from official.nlp.modeling.layers import OnDeviceEmbedding, RelativePositionEmbedding

        super().__init__(name=name)
        # As in the Transformer for translation.
        self.embedding = OnDeviceEmbedding(
            vocab_size=vocab_size,
            embedding_width=width,
            initializer=tf.random_normal_initializer(mean=0.0, stddev=width**-0.5),
            scale_factor=width**0.5,
            name="embedding",
        )
        self.position = RelativePositionEmbedding(hidden_size=width, name="position")
        self.dropout = layers.Dropout(dropout_rate, name="dropout")
        self.encoder = models.TransformerEncoder(
            dropout_rate=dropout_rate,
            attention_dropout_rate=dropout_rate,
            intermediate_dropout=dropout_rate,
            name="stack",
            **stack,
        )

    def call(self, tokens: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Returns [batch, width] for int32 tokens [batch, length]."""
        is_token = tf.not_equal(tokens, PAD)
        x = self.embedding(tokens)
        x += tf.cast(self.position(x), x.dtype)
        x = self.dropout(x, training=training)
        length = tokens.shape[1]
        mask = tf.repeat(tf.cast(is_token, tf.int32)[:, tf.newaxis], length, axis=1)
        encoded = self.encoder(x, attention_mask=mask, training=training)
        # The encoder ends with a normalization in float32.
        return mean_of_tokens(encoded, tokens)


def _logits(x: tf.Tensor, num_classes: int) -> tf.Tensor:
    # The softmax of the loss is not accurate enough in 16 bits.
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)
