"""Predicts the best items for the ids of users."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from orbit_runner.errors import RunnerError
from orbit_runner.tasks.serving import Prediction


class UserPredictor:
    """Predicts items and scores with the signature `top_k`.

    The argument `top_k` is the number of items per user.
    """

    def __init__(self, signature: Callable[..., Any], top_k: int) -> None:
        self._signature, self._top_k = signature, top_k

    def items(self, arguments: Sequence[str], lines: Iterable[str]) -> Iterator[str]:
        """Yields the ids of users as text, in order.

        Arguments are ids, files with one id per line, or `-` for standard input. Empty lines are
        ignored. Raises `RunnerError` if an argument is neither an id nor a file.
        """
        for argument in arguments or ["-"]:
            if argument == "-":
                yield from _nonblank_lines(lines)
            elif _is_id(argument):
                yield argument.strip()
            else:
                yield from _lines_of(argument)

    def predict(self, items: Sequence[str]) -> list[Prediction]:
        """Returns the best items of each user, or what is wrong with the id."""
        ids = [int(item) if _is_id(item) else None for item in items]
        valid_ids = [user for user in ids if user is not None]
        answers = iter(self._predict_users(valid_ids) if valid_ids else [])
        return [
            _error_prediction(f"got {item!r}, expected a user id, an integer", item)
            if user is None
            else next(answers)
            for item, user in zip(items, ids, strict=True)
        ]

    def _predict_users(self, users: Sequence[int]) -> list[Prediction]:
        found = self._signature(
            user=tf.constant(users, tf.int64), k=tf.constant(self._top_k, tf.int32)
        )
        item, score, known = (np.asarray(found[name]) for name in ("item", "score", "known"))
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


def _is_id(text: str) -> bool:
    try:
        return -(2**63) <= int(text) < 2**63
    except ValueError:
        return False


def _lines_of(name: str) -> Iterator[str]:
    try:
        with Path(name).expanduser().open(encoding="utf-8") as file:
            yield from _nonblank_lines(file)
    except (OSError, UnicodeDecodeError):
        raise RunnerError(
            f"got {name!r}, expected a user id, a text file of ids, or - for standard input"
        ) from None


def _nonblank_lines(lines: Iterable[str]) -> Iterator[str]:
    return (line.strip() for line in lines if line.strip())
