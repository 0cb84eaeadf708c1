"""Predicts the best items for the ids of users."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from orbit_runner.errors import RunnerError, shorten
from orbit_runner.tasks.prediction_items import Line, answer_rows, file_lines, is_file, stream_lines
from orbit_runner.tasks.serving import Prediction

# Not all that Python accepts as an integer: `1_0` is 10, and there are digits of other scripts.
_ID = re.compile(r"[+-]?[0-9]{1,20}")
_NUMBER = re.compile(r"\s*[+-]?[0-9]")


class UserPredictor:
    """Predicts items and scores with the signature `top_k`.

    The argument `top_k` is the number of items per user.
    """

    def __init__(self, signature: tf.types.experimental.Callable, top_k: int) -> None:
        self._signature = signature
        self._top_k = top_k

    def items(self, arguments: Sequence[str], lines: Iterable[str]) -> Iterator[Line]:
        """Yields the ids of users as text, in order.

        Arguments are ids, files with one id per line, or `-` for standard input. Empty lines are
        ignored. Raises `RunnerError` if an argument is neither an id nor a file.
        """
        for argument in arguments or ["-"]:
            if argument == "-":
                yield from _nonblank_lines(stream_lines(lines))
            elif is_file(path := os.path.expanduser(argument)):
                yield from _nonblank_lines(file_lines(Path(path)))
            elif _NUMBER.match(argument):
                yield Line(argument.strip())
            else:
                raise RunnerError(
                    f"got {shorten(repr(argument))}, expected a user id, a text file of ids, or - "
                    "for standard input",
                    code="bad-item",
                )

    def predict(self, items: Sequence[Line]) -> list[Prediction]:
        """Returns the best items of each user, or what is wrong with the id."""
        ids = [_parse_id(item.text) for item in items]
        answers = iter(answer_rows(self._predict_users, [user for user in ids if user is not None]))
        predictions = []
        for item, user in zip(items, ids, strict=True):
            if user is None:
                reason = item.problem or (
                    f"got {shorten(repr(item.text))}, expected a user id, an integer of 64 bits"
                )
                predictions.append(_error_prediction(reason, item.text))
                continue
            answer = next(answers)
            predictions.append(
                _error_prediction(answer, user) if isinstance(answer, str) else answer
            )
        return predictions

    def _predict_users(self, users: Sequence[int]) -> list[Prediction]:
        outputs = self._signature(
            user=tf.constant(users, tf.int64), k=tf.constant(self._top_k, tf.int32)
        )
        item, score, known = (np.asarray(outputs[name]) for name in ("item", "score", "known"))
        return [
            _prediction(user, item[row], score[row])
            if known[row]
            else _error_prediction(f"user {user} is not in the training set", user)
            for row, user in enumerate(users)
        ]


def _prediction(user: int, items: np.ndarray, scores: np.ndarray) -> Prediction:
    valid = ~np.isnan(scores)
    pairs = list(zip(items[valid].tolist(), scores[valid].tolist(), strict=True))
    return Prediction(
        text=f"{user}: " + "  ".join(f"{item} ({score:.4f})" for item, score in pairs),
        data={"user": user, "items": [{"item": item, "score": score} for item, score in pairs]},
    )


def _error_prediction(reason: str, user: int | str) -> Prediction:
    return Prediction(text=reason, data={"user": user, "error": reason})


def _parse_id(text: str) -> int | None:
    """Returns the id in a text; None if it is not one."""
    if not _ID.fullmatch(text):
        return None
    user = int(text)
    return user if -(2**63) <= user < 2**63 else None


def _nonblank_lines(lines: Iterable[Line]) -> Iterator[Line]:
    for line in lines:
        if line.problem:
            yield line
        elif line.text.strip():
            yield Line(line.text.strip())
