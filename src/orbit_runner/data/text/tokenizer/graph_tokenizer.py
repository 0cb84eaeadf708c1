"""A vocabulary in the ops of TensorFlow Text, for models that are exported."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from orbit_runner.data.text.source import EOS, PAD, UNKNOWN
from orbit_runner.data.text.tokenizer.vocabulary import SPACES, Vocabulary


class GraphTokenizer:
    """Encodes and decodes text in TensorFlow ops, with the same results as the vocabulary.

    Only after an unknown character, the ops may prefer another one of several equally probable
    splits. Raises DataError with the field `vocabulary` if the ops cannot use the model.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        vocabulary.check_reproducible()
        import tensorflow_text  # Only for exports, because its import takes a while.

        # `SentencepieceTokenizer` more often prefers another one of equally probable splits.
        self._ops = tensorflow_text.FastSentencepieceTokenizer(vocabulary.model)
        self._size = vocabulary.size

    def encode(self, sentences: tf.Tensor, max_length: int | None = None) -> tf.Tensor:
        """Returns the subword ids of sentences: int32 [b, n], ended with `EOS`, padded with 0.

        `sentences` are UTF-8, string [b]; invalid bytes become U+FFFD. Sentences of more than
        `max_length` tokens, including `EOS`, are truncated.
        """
        valid = tf.strings.unicode_transcode(sentences, "UTF-8", "UTF-8")
        rows = self._ops.tokenize(_clean(valid))
        if max_length is not None:
            rows = rows[:, : max_length - 1]
        ends = tf.fill([rows.nrows(), 1], np.int32(EOS))
        return tf.concat([rows, ends], axis=1).to_tensor(PAD)

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the sentences, string [b], of subword ids, int32 or int64 [b, n].

        Padding, and all ids from the first `EOS`, are ignored.
        """
        known = tf.cast(tf.where((ids >= 0) & (ids < self._size), ids, UNKNOWN), tf.int32)
        ended = tf.cumsum(tf.cast(tf.equal(known, EOS), tf.int32), axis=1) > 0
        rows = tf.ragged.boolean_mask(known, ~(ended | tf.equal(known, PAD)))
        return _clean(self._ops.detokenize(rows.with_row_splits_dtype(tf.int32)))


def _clean(sentences: tf.Tensor) -> tf.Tensor:
    """Returns the same as `vocabulary.clean`, string [b]."""
    return tf.strings.strip(tf.strings.regex_replace(sentences, SPACES, " "))
