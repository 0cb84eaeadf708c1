"""Serving of published ids: signatures of an exported model, and the best items of users."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.errors import RunnerError, shorten
from orbit_runner.tasks.recommendation.data import TrainedRatings
from orbit_runner.tasks.recommendation.ranking import Score
from orbit_runner.tasks.serving import (
    Line,
    Prediction,
    Serving,
    answer_rows,
    item_lines,
)

# Returned if there is no item.
NO_ITEM = -1
# Not all that Python accepts as an integer: `1_0` is 10, and there are digits of other scripts.
_ID = re.compile(r"[+-]?[0-9]{1,20}")
_NUMBER = re.compile(r"\s*[+-]?[0-9]")


class Catalog(tf.Module):
    """The published ids and the choices of each user, in tables that are saved with the model."""

    def __init__(self, ratings: TrainedRatings) -> None:
        super().__init__(name="catalogue")
        self.user_ids = _make_table(ratings.user_ids, "user_ids")
        self.item_ids = _make_table(ratings.item_ids, "item_ids")
        self.starts = _make_table(ratings.starts, "starts")
        self.chosen = _make_table(ratings.items, "chosen")
        self.num_items = len(ratings.item_ids)


def make_serving(model: tf_keras.Model, ratings: TrainedRatings) -> Serving:
    """Returns the signatures of a model, `pairs` and `top_k`, and their tables.

    `pairs` takes `user` and `item`, int64 [n]. It returns `score`, float32 [n], the probability
    that the user chooses the item, or NaN if either is unknown; and `known`, bool [n].

    `top_k` takes `user`, int64 [n], and `k`, an int32 scalar. It returns the best items for each
    user except those that the user chose in training: `item`, int64 [n, k], `score`, float32
    [n, k], and `known`, bool [n]. `item` is -1 and `score` NaN if there is no item, for example for
    an unknown user.

    `model` maps `user` and `item`, int32 [batch], to logits.
    """
    tables = Catalog(ratings)

    def score(users: tf.Tensor, items: tf.Tensor) -> tf.Tensor:
        return tf.sigmoid(model({"user": users, "item": items}, training=False))

    @tf.function(input_signature=[_ids_spec("user"), _ids_spec("item")])
    def pairs(user: tf.Tensor, item: tf.Tensor) -> dict[str, tf.Tensor]:
        users, known = _look_up_ids(tables.user_ids, user)
        items, exists = _look_up_ids(tables.item_ids, item)
        known &= exists
        return {"score": tf.where(known, score(users, items), np.nan), "known": known}

    @tf.function(input_signature=[_ids_spec("user"), tf.TensorSpec([], tf.int32, name="k")])
    def top_k(user: tf.Tensor, k: tf.Tensor) -> dict[str, tf.Tensor]:
        users, known = _look_up_ids(tables.user_ids, user)
        # Without any user, `map_fn` would not know the width of its result.
        count = tf.size(users)
        filled = tf.pad(users, [[0, tf.cast(count == 0, tf.int32)]])
        # One user at a time, so that the pairs of only one user are in memory.
        items, scores = tf.map_fn(
            lambda user_index: _top_items(score, tables, user_index, k),
            filled,
            fn_output_signature=(
                tf.TensorSpec([None], tf.int64),
                tf.TensorSpec([None], tf.float32),
            ),
        )
        valid = known[:, tf.newaxis]
        return {
            "item": tf.where(valid, items[:count], NO_ITEM),
            "score": tf.where(valid, scores[:count], np.nan),
            "known": known,
        }

    return Serving({"pairs": pairs, "top_k": top_k}, default="top_k", resources=[tables])


def _top_items(
    score: Score, tables: Catalog, user: tf.Tensor, k: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    items = tf.range(tables.num_items)
    scores = score(tf.fill([tables.num_items], user), items)
    chosen = tables.chosen[tables.starts[user] : tables.starts[user + 1]]
    is_chosen = tf.tensor_scatter_nd_update(
        tf.zeros_like(scores, tf.bool), chosen[:, tf.newaxis], tf.ones_like(chosen, tf.bool)
    )
    scores = tf.where(is_chosen, -1.0, scores)
    # `k` may be larger than the number of items.
    scores = tf.pad(scores, [[0, tf.maximum(k - tables.num_items, 0)]], constant_values=-1.0)
    best, places = tf.math.top_k(scores, k)
    valid = best >= 0.0
    item_ids = tf.gather(tables.item_ids, tf.where(valid, places, 0))
    return tf.where(valid, item_ids, NO_ITEM), tf.where(valid, best, np.nan)


def _look_up_ids(ids: tf.Variable, requested: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    known = tf.convert_to_tensor(ids)
    places = tf.minimum(tf.searchsorted(known, requested), tf.size(known) - 1)
    valid = tf.equal(tf.gather(known, places), requested)
    return tf.where(valid, places, 0), valid


def _ids_spec(name: str) -> tf.TensorSpec:
    return tf.TensorSpec([None], tf.int64, name=name)


def _make_table(array: np.ndarray, name: str) -> tf.Variable:
    with tf.device("CPU:0"):
        return tf.Variable(array, trainable=False, name=name)


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
        for line in item_lines(arguments, lines, _user_id):
            if line.problem:
                yield line
            elif line.text.strip():
                yield Line(line.text.strip())

    def predict(self, items: Sequence[Line]) -> list[Prediction]:
        """Returns the best items of each user, or what is wrong with the id."""
        users = [item.problem or _parse_id(item.text) for item in items]
        answers = answer_rows(self._predict_users, users)
        return [
            _error_prediction(answer, item.text if isinstance(user, str) else user)
            if isinstance(answer, str)
            else answer
            for item, user, answer in zip(items, users, answers, strict=True)
        ]

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


def _user_id(argument: str) -> Line:
    if not _NUMBER.match(argument):
        raise RunnerError(
            f"got {shorten(repr(argument))}, expected a user id, a text file of ids, or - for "
            "standard input",
            code="bad-item",
        )
    return Line(argument)


def _parse_id(text: str) -> int | str:
    """Returns the id in a text, or what is wrong with it."""
    if _ID.fullmatch(text) and -(2**63) <= int(text) < 2**63:
        return int(text)
    return f"got {shorten(repr(text))}, expected a user id, an integer of 64 bits"
