"""Translates lines of text, in order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from orbit_runner.data.text.lines import read_lines
from orbit_runner.errors import RunnerError
from orbit_runner.tasks.serving import Prediction
from orbit_runner.tasks.translation.serving import TEXT

_ROWS = 32
FILE_PATTERN = re.compile(r"\S*(/\S*|\\\S*|\.[A-Za-z]\w{0,5})")


class LinePredictor:
    """Predicts the translations of lines of text.

    Raises `RunnerError` if the signature `text` does not exist.
    """

    def __init__(self, signatures: Mapping[str, Any]) -> None:
        if TEXT not in signatures:
            raise RunnerError(
                "the model accepts only token ids, because it was trained without a vocabulary\n"
                "set task.sentencepiece_model_path to the vocabulary of its data"
            )
        self._translate = signatures[TEXT]

    def items(self, arguments: Sequence[str], lines: Iterable[str]) -> Iterator[str]:
        """Yields the lines to translate, without line endings.

        Arguments are files, `-` for standard input, or sentences. Raises `RunnerError` if an
        argument looks like a file that does not exist.
        """
        for argument in arguments or ["-"]:
            if argument == "-":
                yield from (line.rstrip("\r\n") for line in lines)
            elif Path(argument).is_file():
                yield from read_lines(Path(argument))
            elif FILE_PATTERN.fullmatch(argument):
                raise RunnerError(f"file not found: {argument}")
            else:
                yield argument

    def predict(self, items: Sequence[str]) -> list[Prediction]:
        """Returns the translations of lines, in the same order. Blank lines give empty text."""
        answers = {n: Prediction("", _prediction_data(line, "")) for n, line in enumerate(items)}
        # Groups lines of similar length, because a batch takes as long as its longest line.
        order = sorted(
            (n for n, line in enumerate(items) if line.strip()), key=lambda n: len(items[n])
        )
        for first in range(0, len(order), _ROWS):
            chosen = order[first : first + _ROWS]
            found = self._translate(text=tf.constant([items[n] for n in chosen]))
            rows = zip(chosen, found["translations"].numpy(), found["scores"].numpy(), strict=True)
            for n, raw, score in rows:
                text = raw.decode("utf-8", "replace")
                answers[n] = Prediction(text, _prediction_data(items[n], text, float(score)))
        return [answers[n] for n in range(len(items))]


def _prediction_data(source: str, translation: str, score: float | None = None) -> dict[str, Any]:
    return {"source": source, "translation": translation, "score": score}
