"""Words as tokens: the most frequent words of a text, and their ids."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from orbit_runner.data.text.source import Ragged

PAD, UNKNOWN = 0, 1
_FIRST = 2
_OTHERS = r"[^\pL\pM\pN]+"
_BLOCK_TEXTS = 2**14


def split_words(texts: tf.Tensor) -> tf.RaggedTensor:
    """Returns the words of texts, string [n, (words)]: runs of letters and digits, in lower case.

    `texts` are UTF-8, string [n]; invalid bytes become U+FFFD. Training and served models both use
    this function, so that they split a text in the same way.
    """
    valid = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
    lower = tf.strings.lower(valid, encoding="utf-8")
    return tf.strings.split(tf.strings.regex_replace(lower, _OTHERS, " "))


def frequent_words(counts: Mapping[str, int], size: int) -> tuple[str, ...]:
    """Returns the most frequent words of texts; equally frequent words are in alphabetical order.

    `counts` maps each text to its number of occurrences. With padding and unknown words, there
    are at most `size` ids.
    """
    word_counts: Counter[bytes] = Counter()
    times = iter(counts.values())
    for words, offsets in _split_in_blocks([*counts]):
        for first, last in itertools.pairwise(offsets):
            weight = next(times)
            for word in words[first:last]:
                word_counts[word] += weight
    ordered = sorted(word_counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return tuple(word.decode() for word, _ in ordered[: size - _FIRST])


def encode_words(texts: Sequence[str], words: Sequence[str]) -> Ragged:
    """Returns the ids of the words of each text: their index in `words` plus 2, or 1."""
    # Not a lookup table of TensorFlow, which a strategy may place on another machine.
    ids = {word.encode(): number for number, word in enumerate(words, _FIRST)}
    parts = [
        Ragged(
            np.array([ids.get(word, UNKNOWN) for word in block_words], np.int32),
            np.array(offsets, np.int64),
        )
        for block_words, offsets in _split_in_blocks(texts)
    ]
    return Ragged.concatenate(parts)


class WordTokenizer(tf.Module):
    """Encodes texts in TensorFlow ops, with the results of `encode_words`."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__(name="tokenizer")
        keys = tf.constant(list(words) or [""], tf.string)
        values = tf.range(_FIRST, _FIRST + len(words)) if words else tf.fill([1], UNKNOWN)
        pairs = tf.lookup.KeyValueTensorInitializer(keys, values)
        self._table = tf.lookup.StaticHashTable(pairs, UNKNOWN)

    def encode(self, texts: tf.Tensor, max_length: int) -> tf.Tensor:
        """Returns the first ids of texts, string [n], padded with 0: int32 [n, max_length]."""
        words = split_words(texts)
        ids = words.with_flat_values(self._table.lookup(words.flat_values))
        return ids.to_tensor(PAD, shape=[None, max_length])


def _split_in_blocks(texts: Sequence[str]) -> Iterator[tuple[list[bytes], list[int]]]:
    """Yields the words of blocks of texts, and the offset of each text's first word."""
    for first in range(0, len(texts), _BLOCK_TEXTS):
        # Eager even while a graph is built, and not on an accelerator.
        with tf.init_scope(), tf.device("CPU:0"):
            ragged = split_words(tf.constant(texts[first : first + _BLOCK_TEXTS], tf.string))
            words, offsets = ragged.flat_values.numpy(), ragged.row_splits.numpy()
        yield words.tolist(), offsets.tolist()
