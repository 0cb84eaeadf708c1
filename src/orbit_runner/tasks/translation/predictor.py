"""Translates lines of text, in order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import tensorflow as tf

from orbit_runner.errors import RunnerError, shorten
from orbit_runner.tasks.prediction_items import (
    Line,
    answer_rows,
    argument_line,
    file_lines,
    is_file,
    stream_lines,
)
from orbit_runner.tasks.serving import Prediction
from orbit_runner.tasks.translation.serving import TEXT

_ROWS = 32
FILE_PATTERN = re.compile(r"\S*(/\S*|\\\S*|\.[A-Za-z]\w{0,5})")


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
        for argument in arguments or ["-"]:
            if argument == "-":
                yield from stream_lines(lines)
            elif is_file(argument):
                yield from file_lines(Path(argument))
            elif FILE_PATTERN.fullmatch(argument):
                raise RunnerError(f"file not found: {shorten(argument)}", code="missing-file")
            else:
                yield argument_line(argument)

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
            chosen = order[first : first + _ROWS]
            texts = [items[n].text for n in chosen]
            rows = zip(chosen, texts, answer_rows(self._translate_rows, texts), strict=True)
            answers |= {n: _answer(text, answer) for n, text, answer in rows}
        return [answers[n] for n in range(len(items))]

    def _translate_rows(self, texts: Sequence[str]) -> list[tuple[str, float]]:
        translated = self._translate(text=tf.constant(list(texts)))
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
