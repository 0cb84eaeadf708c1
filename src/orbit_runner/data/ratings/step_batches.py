"""Batches of users and items as functions of their steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from orbit_runner.data.chunks import Chunks
from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.data.order.keyed_random import random_bits, scale
from orbit_runner.data.order.mixture import make_order
from orbit_runner.data.order.permutation import walk_cycles
from orbit_runner.data.order.sharding import count_eval_steps
from orbit_runner.data.order.tf_arrays import TENSORFLOW
from orbit_runner.data.ratings.interactions import RatingSource
from orbit_runner.data.stored_tensor import SortedTable, Table, stored_tensor

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors


class NegativeItems:
    """The items that each user has no interaction with, in ascending order.

    Let c_0 < c_1 < … be the items that a user has interacted with. Below c_k there are c_k - k
    other items. So the r-th other item is r + k, where k is the number of items for which c_k - k ≤
    r. One binary search over the items of all users finds k, because the keys of each user are
    above those of the user before.

    `users` and `items`, both [n], must be sorted by user and then by item, without duplicates.
    """

    def __init__(self, users: np.ndarray, items: np.ndarray, num_users: int, num_items: int):
        counts = np.bincount(users, minlength=num_users)
        starts = np.concatenate([[0], np.cumsum(counts)])
        ranks = np.arange(len(users)) - starts[users]
        self._stride = num_items + 1
        # Keys of half the size make the search more than twice as fast, because memory limits it.
        self._dtype = np.uint32 if num_users * self._stride < 2**32 else np.int64
        keys = users.astype(np.int64) * self._stride + items - ranks
        self._keys = SortedTable(keys.astype(self._dtype))
        self._starts = stored_tensor(starts)
        self._free = stored_tensor((num_items - counts).astype(np.int64))

    def count(self, users: tf.Tensor) -> tf.Tensor:
        """Returns the number of items that each user has no interaction with: int64 [b].

        `users` are integers [b].
        """
        return tf.gather(self._free, users)

    def __call__(self, users: tf.Tensor, ranks: tf.Tensor) -> tf.Tensor:
        """Returns the item of each rank among the user's items without interaction: int64 [b].

        `users` are integers [b]. `ranks`, int64 [b], must be below the user's `count`.
        """
        wanted = tf.cast(tf.cast(users, tf.int64) * self._stride + ranks, self._dtype)
        below = self._keys.count_at_most(wanted)
        return ranks + below - tf.gather(self._starts, users)


def draw_distinct(sizes: tf.Tensor, keys: tf.Tensor, count: int) -> tf.Tensor:
    """Returns `count` different integers per row, each from 0 to size - 1: int64 [b, count].

    `sizes`, int64 [b], must be at least 1. `keys`, uint64 [b], must already be hashed. If a size is
    below `count`, its row ends with values that are not below the size.
    """
    limits = tf.cast(sizes, tf.uint64)[:, tf.newaxis]
    # The smallest square that is not below the size.
    sides = tf.cast(tf.math.ceil(tf.sqrt(tf.cast(sizes, tf.float64))), tf.uint64)[:, tf.newaxis]
    places = tf.range(count, dtype=tf.int64)[tf.newaxis] + tf.zeros_like(sizes)[:, tf.newaxis]
    return walk_cycles(tf.cast(places, tf.uint64), limits, sides, sides, keys[:, tf.newaxis])


_CHUNK_PAIRS = 2**16


def pair_chunks(
    source: RatingSource,
    *,
    num_negatives: int,
    global_batch_size: int,
    seed: int,
    replicas: int = 1,
    shuffle: bool = True,
    excluded: np.ndarray = NO_EXAMPLES,
) -> Chunks:
    """Returns the training batches `({user, item}, label)`, which never end, addressed by step.

    Each interaction is followed by k = `num_negatives` sampled items, and its label is 1. Example e
    of n·(1 + k) belongs to interaction e // (1 + k). Items are sampled again in each epoch,
    uniformly from those that are not in the user's training interactions. The held-out item may be
    among them: as in the published code of He et al. 2017, training has no information about it.

    If `shuffle` is false, examples are in stored order. `excluded`, int64 [k], are the examples to
    leave out, ascending. The item of an interaction that is left out still counts as one that the
    user has interacted with, so that the items sampled for other examples stay the same.
    """
    pairs_per_choice = 1 + num_negatives
    batch_size = global_batch_size // replicas
    order = make_order(source.size * pairs_per_choice, seed, shuffle, excluded, xp=TENSORFLOW)
    all_users, all_items = Table(source.users), Table(source.items)
    negatives = NegativeItems(source.users, source.items, source.num_users, source.num_items)

    def make(positions: tf.Tensor) -> Tensors:
        ids, epochs, _ = order(tf.reshape(positions, [-1]))
        choices = ids // pairs_per_choice
        chosen = tf.equal(ids, choices * pairs_per_choice)
        users = all_users(choices, epochs)
        bits = random_bits(seed, ids, epochs, "negativ")
        free = tf.cast(negatives.count(users), tf.uint64)
        drawn = negatives(users, tf.cast(scale(bits, free), tf.int64))
        items = tf.where(chosen, all_items(choices, epochs), tf.cast(drawn, tf.int32))
        batches = {"user": users, "item": items}, tf.cast(chosen, tf.float32)
        return tf.nest.map_structure(lambda t: tf.reshape(t, [-1, batch_size]), batches)

    return Chunks(
        make=make,
        global_batch_size=global_batch_size,
        batch_size=batch_size,
        length=max(1, _CHUNK_PAIRS // batch_size),
        nbytes=_nbytes(source),
    )


class Candidates:
    """The items among which each user's held-out item is ranked, the same in every evaluation.

    They are `num_negatives` different items per user, sampled from those that the user has no
    interaction with, either in training or held out; 0 means all of those items.
    """

    def __init__(self, source: RatingSource, *, num_negatives: int, seed: int) -> None:
        self._count = num_negatives
        self._seed = seed
        self._held_out = stored_tensor(source.held_out)
        self._num_items = source.num_items
        users = np.append(source.users, np.arange(source.num_users))
        items = np.append(source.items, source.held_out)
        order = np.argsort(users * np.int64(source.num_items) + items, kind="stable")
        self._negatives = NegativeItems(
            users[order], items[order], source.num_users, source.num_items
        )
        self._max_candidates = source.num_items - int(np.bincount(users).min())

    @property
    def width(self) -> int:
        """The number of candidates of a user, including the held-out item."""
        return 1 + (self._count or self._max_candidates)

    def __call__(self, users: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the candidates, int32 [b, width], and which of them are valid, bool [b, width].

        The held-out item comes first. Some entries are not valid, because some users have fewer
        candidates than others. `users` is int64 [b].
        """
        free = self._negatives.count(users)
        count = self.width - 1
        if self._count:
            keys = random_bits(self._seed, users, tf.zeros_like(users), "rank")
            ranks = draw_distinct(tf.maximum(free, 1), keys, count)
        else:
            ranks = tf.range(count, dtype=tf.int64) + tf.zeros_like(users)[:, tf.newaxis]
        valid = ranks < free[:, tf.newaxis]
        ranks = tf.where(valid, ranks, 0)
        repeated_users = tf.repeat(users, count)
        drawn = tf.reshape(self._negatives(repeated_users, tf.reshape(ranks, [-1])), [-1, count])
        held_out = tf.gather(self._held_out, users)[:, tf.newaxis]
        items = tf.where(valid, tf.cast(drawn, tf.int32), held_out)
        return tf.concat([held_out, items], 1), tf.pad(
            valid, [[0, 0], [1, 0]], constant_values=True
        )


def user_chunks(
    source: RatingSource,
    *,
    num_negatives: int,
    global_batch_size: int,
    seed: int,
    replicas: int = 1,
    drop_remainder: bool = False,
) -> Chunks:
    """Returns the evaluation batches, indexed by step: each user once, in order.

    They are `({user [b], item [b, width]}, valid [b, width], weights [b])`, as described in
    `Candidates`. The last one is padded with user 0, whose weight is 0; all other weights are 1.
    Raises DataError if there is no step.
    """
    steps = count_eval_steps(source.name, source.num_users, global_batch_size, drop_remainder)
    candidates = Candidates(source, num_negatives=num_negatives, seed=seed)
    batch_size = global_batch_size // replicas

    def make(positions: tf.Tensor) -> Tensors:
        real = positions < source.num_users
        users = tf.where(real, positions, 0)
        items, valid = candidates(tf.reshape(users, [-1]))
        shape = [-1, batch_size, candidates.width]
        features = {"user": tf.cast(users, tf.int32), "item": tf.reshape(items, shape)}
        return features, tf.reshape(valid, shape), tf.cast(real, tf.float32)

    return Chunks(
        make=make,
        global_batch_size=global_batch_size,
        batch_size=batch_size,
        length=max(1, _CHUNK_PAIRS // (batch_size * candidates.width)),
        nbytes=_nbytes(source),
        steps=steps,
    )


def _nbytes(source: RatingSource) -> int:
    return source.users.nbytes + source.items.nbytes
