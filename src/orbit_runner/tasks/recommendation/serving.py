"""Signatures of an exported model. Their inputs and outputs are published ids."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.tasks.recommendation.ranking import Score
from orbit_runner.tasks.recommendation.sources import TrainedRatings
from orbit_runner.tasks.serving import Serving

# Returned if there is no item.
NO_ITEM = -1


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
    taken = tf.tensor_scatter_nd_update(
        tf.zeros_like(scores, tf.bool), chosen[:, tf.newaxis], tf.ones_like(chosen, tf.bool)
    )
    scores = tf.where(taken, -1.0, scores)
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
