"""Serving of a Transformer: signatures from text to text and ids to ids, and lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import tensorflow as tf
import tf_keras

from orbit_runner.data.text.tokenizer.graph_tokenizer import GraphTokenizer
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary
from orbit_runner.errors import RunnerError
from orbit_runner.tasks.serving import (
    Line,
    Prediction,
    Serving,
    answer_rows,
    item_lines,
    sentence_line,
)
from orbit_runner.tf_internals import unpadded_decoding_scope

TEXT, TOKENS = "text", "tokens"
_ONLY_SAVED_MODEL = (
    "translation is a beam search over sentences of any length around the network, which alone "
    "gives no translations, and only a SavedModel can contain both"
)

_ROWS = 32


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


class LinePredictor:
    """Predicts the translations of lines of text.

    Raises `RunnerError` if the signature `text` does not exist.
    """

    def __init__(self, signatures: Mapping[str, tf.types.experimental.Callable]) -> None:
        if TEXT not in signatures:
            raise RunnerError(
                "the model accepts only token ids, because it was trained without a vocabulary\n"
                "set task.sentencepiece_model_path to the vocabulary of its data",
                code="missing-file",
            )
        self._translate = signatures[TEXT]

    def items(self, arguments: Sequence[str], lines: Iterable[str]) -> Iterator[Line]:
        """Yields the lines to translate, without line endings.

        Arguments are files, `-` for standard input, or sentences. Raises `RunnerError` if an
        argument looks like a file that does not exist.
        """
        return item_lines(arguments, lines, sentence_line)

    def predict(self, items: Sequence[Line]) -> list[Prediction]:
        """Returns the translations of lines, in the same order. Blank lines give empty text."""
        answers = {
            n: _error_prediction(line.text, line.problem)
            if line.problem
            else Prediction("", _prediction_data(line.text, ""))
            for n, line in enumerate(items)
        }
        # Groups lines of similar length, because a batch takes as long as its longest line.
        order = sorted(
            (n for n, line in enumerate(items) if line.text.strip() and not line.problem),
            key=lambda n: len(items[n].text),
        )
        for first in range(0, len(order), _ROWS):
            numbers = order[first : first + _ROWS]
            rows = answer_rows(self._translate_rows, [items[n] for n in numbers])
            answers |= {
                n: _answer(items[n].text, row) for n, row in zip(numbers, rows, strict=True)
            }
        return [answers[n] for n in range(len(items))]

    def _translate_rows(self, lines: Sequence[Line]) -> list[tuple[str, float]]:
        translated = self._translate(text=tf.constant([line.text for line in lines]))
        translations = [
            raw.decode("utf-8", "replace") for raw in translated["translations"].numpy()
        ]
        return list(zip(translations, translated["scores"].numpy().tolist(), strict=True))


def _answer(source: str, answer: tuple[str, float] | str) -> Prediction:
    if isinstance(answer, str):
        return _error_prediction(source, answer)
    text, score = answer
    return Prediction(text, _prediction_data(source, text, score))


def _error_prediction(source: str, reason: str) -> Prediction:
    return Prediction(f"error: {reason}", {"source": source, "error": reason})


def _prediction_data(
    source: str, translation: str, score: float | None = None
) -> dict[str, str | float | None]:
    return {"source": source, "translation": translation, "score": score}
