"""Translates lines: one line in, one line out, in the same order."""

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
_LIKE_A_FILE = re.compile(r"\S*(/\S*|\\\S*|\.[A-Za-z]\w{0,5})")


class LinePredictor:
    """Answers lines of text with their translations."""

    def __init__(self, signatures: Mapping[str, Any]) -> None:
        """Takes the signature `text`.

        Args:
            signatures: Those of a model in memory or of an exported one.

        Raises:
            RunnerError: It is not there.
        """
        if TEXT not in signatures:
            raise RunnerError(
                "the model knows token ids alone: it was trained without a vocabulary\n"
                "set task.sentencepiece_model_path to that of its data"
            )
        self._translate = signatures[TEXT]

    def items(self, arguments: Sequence[str], lines: Iterable[str]) -> Iterator[str]:
        """Finds the lines.

        Args:
            arguments: Files, `-` for standard input, or sentences.
            lines: Standard input.

        Yields:
            The lines, without their ends.

        Raises:
            RunnerError: What looks like a file is none.
        """
        for argument in arguments or ["-"]:
            if argument == "-":
                yield from (line.rstrip("\r\n") for line in lines)
            elif Path(argument).is_file():
                yield from read_lines(Path(argument))
            elif _LIKE_A_FILE.fullmatch(argument):
                raise RunnerError(f"there is no file {argument}")
            else:
                yield argument

    def predict(self, items: Sequence[str]) -> list[Prediction]:
        """Translates lines; those without a word stay as they are.

        Args:
            items: The lines.

        Returns:
            Their translations, in the same order.
        """
        answers = {n: Prediction("", _data(line, "")) for n, line in enumerate(items)}
        # Lines of about the same length together: a batch takes as long as its longest.
        order = sorted(
            (n for n, line in enumerate(items) if line.strip()), key=lambda n: len(items[n])
        )
        for first in range(0, len(order), _ROWS):
            chosen = order[first : first + _ROWS]
            found = self._translate(text=tf.constant([items[n] for n in chosen]))
            rows = zip(chosen, found["translations"].numpy(), found["scores"].numpy(), strict=True)
            for n, raw, score in rows:
                text = raw.decode("utf-8", "replace")
                answers[n] = Prediction(text, _data(items[n], text, float(score)))
        return [answers[n] for n in range(len(items))]


def _data(source: str, translation: str, score: float | None = None) -> dict[str, Any]:
    return {"source": source, "translation": translation, "score": score}
