"""What is fitted on a column of texts: words or subwords, and the tokens of each text."""

from __future__ import annotations

import base64
import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf

from orbit_runner.data.tables.columns import Column
from orbit_runner.data.text.source import PAD, Ragged
from orbit_runner.data.text.tokenizer.graph_tokenizer import GraphTokenizer
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary, build_vocabulary
from orbit_runner.data.text.tokenizer.words import (
    WordTokenizer,
    encode_words,
    frequent_words,
)
from orbit_runner.errors import DataError
from orbit_runner.tasks.tabular.config import WORDS, TextColumnConfig


@dataclasses.dataclass(frozen=True)
class TextFit:
    """The vocabulary of a column of texts.

    Attributes:
        max_length: The number of tokens of each text that the model sees.
        words: The words by id, from id 2; empty for subwords.
        sentencepiece: The SentencePiece model of subwords in base64; "" for words.
    """

    max_length: int
    words: Sequence[str] = ()
    sentencepiece: str = ""

    @property
    def size(self) -> int:
        """The number of token ids. Id 0 is padding."""
        return self._subwords.size if self.sentencepiece else len(self.words) + 2

    def tokens(self, column: Column) -> np.ndarray:
        """Returns the tokens of each row, int32 [n, max_length], padded with 0."""
        # The last text is that of missing values, whose code is -1.
        texts = [*column.vocabulary, ""]
        if self.sentencepiece:
            rows = self._subwords.encode(texts).cut(self.max_length)
        else:
            rows = encode_words(texts, self.words)
        return _pad_rows(rows, self.max_length)[column.values]

    def encode(self, tokenizer: Tokenizer, texts: tf.Tensor) -> tf.Tensor:
        """Returns the same tokens of texts, string [n], with the result of `make_tokenizer`."""
        ids = tokenizer.encode(texts, self.max_length)
        padding = self.max_length - tf.shape(ids)[1]
        return tf.ensure_shape(tf.pad(ids, [[0, 0], [0, padding]]), [None, self.max_length])

    def decode(self, rows: Iterable[Sequence[int]]) -> list[str]:
        """Returns the texts of rows of tokens, as the model sees them."""
        if self.sentencepiece:
            return self._subwords.decode(rows)
        names = ("", "⁇", *self.words)
        return [" ".join(names[token] for token in row if token) for row in rows]

    def make_tokenizer(self) -> Tokenizer:
        """Returns the tokenizer for a model that is exported."""
        return GraphTokenizer(self._subwords) if self.sentencepiece else WordTokenizer(self.words)

    @functools.cached_property
    def _subwords(self) -> Vocabulary:
        return Vocabulary(base64.b64decode(self.sentencepiece))


class Tokenizer(Protocol):
    """Encodes texts in TensorFlow ops. Is a `tf.Module`."""

    def encode(self, texts: tf.Tensor, max_length: int, /) -> tf.Tensor:
        """Returns int32 [n, at most max_length], padded with 0, of string [n]."""
        ...


def fit_text(config: TextColumnConfig, column: Column) -> TextFit:
    """Fits the vocabulary of a column on the training rows.

    Raises `DataError` if the texts have fewer subwords than `vocab_size`.
    """
    counts = {text: rows for text, rows in column.text_counts().items() if text}
    if config.tokenizer == WORDS:
        return TextFit(config.max_length, frequent_words(counts, config.vocab_size))
    try:
        vocabulary = build_vocabulary(counts, size=config.vocab_size, character_coverage=1.0)
    except DataError as error:
        problem = f"column {config.column!r}: {error.field}: {error}"
        raise DataError(problem, field="columns", code=error.code) from error
    return TextFit(config.max_length, sentencepiece=base64.b64encode(vocabulary.model).decode())


def _pad_rows(rows: Ragged, width: int) -> np.ndarray:
    """Returns the first tokens of each row, padded with 0: int32 [n, width]."""
    padded = np.full((rows.size, width), PAD, np.int32)
    places = np.arange(len(rows.values)) - np.repeat(rows.offsets[:-1], rows.lengths)
    inside = places < width
    numbers = np.repeat(np.arange(rows.size), rows.lengths)
    padded[numbers[inside], places[inside]] = rows.values[inside]
    return padded
