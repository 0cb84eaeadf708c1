"""Layers for tokens: embeddings, and their mean over a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from orbit_runner.data.text.source import PAD


class TokenMean(tf_keras.layers.Layer):
    """The mean of the embeddings of a text's tokens; zeros for a text without tokens.

    The layer computes in float32, whatever the policy, because 16 bits cannot count tokens.
    """

    def __init__(self, size: int, width: int, **kwargs: Any) -> None:
        super().__init__(dtype="float32", **kwargs)
        self._size = size
        self._width = width

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates the embeddings."""
        self.table = self.add_weight("table", (self._size, self._width), initializer="uniform")

    def call(self, tokens: tf.Tensor) -> tf.Tensor:
        """Returns [batch, width] for int32 tokens [batch, length]."""
        return mean_of_tokens(tf.gather(self.table, tokens), tokens)


class TextColumnMeans(tf_keras.layers.Layer):
    """The means of several texts, side by side, each with its own embeddings.

    `sizes` has the number of token ids of each text, and `lengths` its number of tokens.
    """

    def __init__(
        self, sizes: Sequence[int], widths: Sequence[int], lengths: Sequence[int], **kwargs: Any
    ) -> None:
        super().__init__(dtype="float32", **kwargs)
        self._lengths = list(lengths)
        self.means = [
            TokenMean(size, width, name=f"text{place}")
            for place, (size, width) in enumerate(zip(sizes, widths, strict=True))
        ]

    def call(self, tokens: tf.Tensor) -> tf.Tensor:
        """Returns [batch, width] for int32 tokens [batch, sum of lengths]."""
        texts = tf.split(tokens, self._lengths, axis=1)
        return tf.concat([mean(text) for mean, text in zip(self.means, texts, strict=True)], 1)


def mean_of_tokens(encoded: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
    """Returns the mean of encodings [batch, length, width] over all tokens but padding.

    `tokens` are int32 [batch, length]. Without tokens, it is 0.
    """
    mask = tf.cast(tf.not_equal(tokens, PAD), encoded.dtype)
    total = tf.reduce_sum(encoded * mask[:, :, tf.newaxis], axis=1)
    return total / tf.maximum(tf.reduce_sum(mask, axis=1, keepdims=True), 1)
