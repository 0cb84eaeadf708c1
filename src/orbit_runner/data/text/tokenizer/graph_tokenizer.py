"""A vocabulary in plain TensorFlow ops, for models that are served without other libraries."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from orbit_runner.data.text.source import EOS, PAD, UNKNOWN
from orbit_runner.data.text.tokenizer.segmentation import best_pieces
from orbit_runner.data.text.tokenizer.trie import trie_of
from orbit_runner.data.text.tokenizer.vocabulary import SPACES, Vocabulary

_SPACE = "▁"


class GraphTokenizer(tf.Module):
    """Encodes and decodes text in TensorFlow ops, with the same results as the vocabulary.

    Raises DataError with the field `vocabulary` if plain ops cannot reproduce the vocabulary.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(name="tokenizer")
        vocabulary.check_reproducible()
        self._trie = trie_of(vocabulary)
        texts = [piece.replace(_SPACE, " ") for piece in vocabulary.pieces]
        texts[PAD], texts[EOS], texts[UNKNOWN] = "", "", " ⁇ "
        self._texts = np.array([text.encode() for text in texts], object)

    def encode(self, sentences: tf.Tensor, max_length: int | None = None) -> tf.Tensor:
        """Returns the subword ids of sentences: int32 [b, n], ended with `EOS`, padded with 0.

        `sentences` are UTF-8, string [b]; invalid bytes become U+FFFD. Sentences of more than
        `max_length` tokens, including `EOS`, are truncated.
        """
        valid = tf.strings.unicode_transcode(sentences, "UTF-8", "UTF-8")
        cleaned = _clean(valid)
        marked = tf.strings.regex_replace(tf.strings.join([" ", cleaned]), " ", _SPACE)
        marked = tf.where(tf.equal(cleaned, ""), "", marked)
        characters = tf.strings.unicode_decode(marked, "UTF-8")
        rows = best_pieces(self._trie, characters.to_tensor(), characters.row_lengths())
        if max_length is not None:
            rows = rows[:, : max_length - 1]
        ends = tf.fill([rows.nrows(), 1], np.int32(EOS))
        return tf.concat([rows, ends], axis=1).to_tensor(PAD)

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the sentences, string [b], of subword ids, int32 or int64 [b, n].

        Padding, and all ids from the first `EOS`, are ignored.
        """
        known = tf.where((ids >= 0) & (ids < len(self._texts)), ids, UNKNOWN)
        ended = tf.cumsum(tf.cast(tf.equal(known, EOS), tf.int32), axis=1) > 0
        texts = tf.gather(tf.constant(self._texts, tf.string), known)
        return _clean(tf.strings.reduce_join(tf.where(ended, "", texts), axis=1))


def _clean(sentences: tf.Tensor) -> tf.Tensor:
    """Returns the same as `vocabulary.clean`, string [b]."""
    return tf.strings.strip(tf.strings.regex_replace(sentences, SPACES, " "))
