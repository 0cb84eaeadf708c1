"""Networks that classify texts: a bag of words."""

from __future__ import annotations

from collections.abc import Sequence

import tf_keras

from orbit_runner.tasks.tabular.layers import TokenMean
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
    num_classes]. For the settings, see `TextClassifierConfig`.
    """
    tokens = tf_keras.Input((length,), dtype="int32", name="tokens")
    x = TokenMean(vocab_size, embedding_width, name="embedding")(tokens)
    if dropout_rate:
        x = layers.Dropout(dropout_rate, name="dropout")(x)
    x = hidden_layers(x, hidden_units, dropout_rate)
    # The softmax of the loss is not accurate enough in 16 bits.
    logits = layers.Dense(num_classes, dtype="float32", name="logits")(x)
    return tf_keras.Model(tokens, logits, name="bag_of_words")
