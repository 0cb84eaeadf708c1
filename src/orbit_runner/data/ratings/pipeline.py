"""Pipelines of pairs of users and items, in which a batch is a function of (seed, step)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from orbit_runner.data.keyed_random import keyed_bits, scale
from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.pipeline import checked_eval_steps
from orbit_runner.data.ratings.distinct import distinct
from orbit_runner.data.ratings.interactions import RatingSource
from orbit_runner.data.ratings.negatives import Unchosen
from orbit_runner.data.sampling import IndexSampler
from orbit_runner.data.service import made_by
from orbit_runner.data.slicing import ReplicaSlices, replica_slices
from orbit_runner.data.table import on_cpu

_CHUNK_PAIRS = 2**16
_ENDLESS = 2**62
_NEGATIVE_SALT = 0x6E656761746976
_EVALUATION_SALT = 0x72616E6B


class TrainingPairs:
    """The examples of training: each choice, and some items that its user did not choose.

    Example e of n·(1 + k) belongs to choice e // (1 + k); the first of a choice is the choice
    itself, the others are drawn anew each epoch, uniformly among the items that are none of the
    user's training choices. That may be the item held out: as in the published code of He et al.
    2017, training knows nothing of it.
    """

    def __init__(
        self, source: RatingSource, *, num_negatives: int, seed: int, shuffle: bool = True
    ) -> None:
        """Takes the tables.

        Args:
            source: The choices.
            num_negatives: Negative examples a choice, k.
            seed: Seed of order and draws.
            shuffle: Whether each epoch has an order of its own; as stored otherwise.
        """
        self._each, self._seed = 1 + num_negatives, seed
        self._sampler = IndexSampler(source.size * self._each, seed, shuffle)
        self._users, self._items = on_cpu(source.users), on_cpu(source.items)
        self._unchosen = Unchosen(source.users, source.items, source.num_users, source.num_items)

    def __call__(self, positions: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Makes examples.

        Args:
            positions: Places in the endless row of examples, int64 [b].

        Returns:
            `user` and `item`, int32 [b], and labels, float32 [b], 1 for a choice.
        """
        ids, epochs = self._sampler(positions)
        choices = ids // self._each
        chosen = tf.equal(ids, choices * self._each)
        users = tf.gather(self._users, choices)
        bits = keyed_bits(self._seed, ids, epochs, _NEGATIVE_SALT)
        free = tf.cast(self._unchosen.count(users), tf.uint64)
        drawn = self._unchosen(users, tf.cast(scale(bits, free), tf.int64))
        items = tf.where(chosen, tf.gather(self._items, choices), tf.cast(drawn, tf.int32))
        return {"user": users, "item": items}, tf.cast(chosen, tf.float32)


def train_pairs(
    source: RatingSource,
    *,
    num_negatives: int,
    global_batch_size: int,
    seed: int,
    start_step: int | tf.Tensor = 0,
    shuffle: bool = True,
    input_context: tf.distribute.InputContext | None = None,
    options: PipelineOptions = PipelineOptions(),  # noqa: B008
) -> tf.data.Dataset:
    """Makes the endless pipeline of one worker's training batches.

    Args:
        source: The choices.
        num_negatives: Negative examples a choice.
        global_batch_size: Examples of a step on all replicas.
        seed: Seed of order and draws.
        start_step: The step of the first batch; in a graph, an int64 scalar tensor as well.
        shuffle: Whether each epoch has an order of its own; as stored otherwise.
        input_context: Which slice of each batch to make; all of it if None.
        options: How tf.data runs it.

    Returns:
        `({user, item}, label)` for one replica, [global_batch_size // replicas].

    Raises:
        DataError: The batch does not divide by the replicas.
    """
    slices = replica_slices(global_batch_size, input_context)
    pairs = TrainingPairs(source, num_negatives=num_negatives, seed=seed, shuffle=shuffle)
    length = max(1, _CHUNK_PAIRS // slices.batch_size)

    def chunk(first: tf.Tensor) -> Any:
        positions = slices.positions(tf.range(first, first + length), start_step)
        batches = pairs(tf.reshape(positions, [-1]))
        return tf.nest.map_structure(lambda t: tf.reshape(t, [-1, slices.batch_size]), batches)

    firsts = tf.data.Dataset.range(0, _ENDLESS, length)
    batches = _unbatched(firsts, chunk, length, options)
    # A finite set would make a distributed iterator ask all replicas every step whether it ended.
    endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    return batches.apply(endless).with_options(options.tf_options())


def train_pairs_at(
    source: RatingSource,
    *,
    num_negatives: int,
    global_batch_size: int,
    seed: int,
    shuffle: bool = True,
) -> Callable[[tf.Tensor], Any]:
    """Makes what gives the batches that `train_pairs` gives, by the numbers of their steps.

    Args:
        source: The choices.
        num_negatives: Negative examples a choice.
        global_batch_size: Examples of a step.
        seed: Seed of order and draws.
        shuffle: Whether each epoch has an order of its own; as stored otherwise.

    Returns:
        A function from the number of a step, int64 scalar, to its batch.
    """
    slices = replica_slices(global_batch_size, None)
    pairs = TrainingPairs(source, num_negatives=num_negatives, seed=seed, shuffle=shuffle)

    def batch(step: tf.Tensor) -> Any:
        # The tables lie in the memory of the host.
        with tf.device("CPU:0"):
            return pairs(slices.positions(step[tf.newaxis])[0])

    return batch


class Candidates:
    """What each user's held-out item is ranked among, the same in every evaluation."""

    def __init__(self, source: RatingSource, *, num_negatives: int, seed: int) -> None:
        """Takes the tables.

        Args:
            source: The choices.
            num_negatives: How many items to draw for a user, different ones that the user chose
                neither in training nor last; 0 for all of them.
            seed: Seed of the draws.
        """
        self._count, self._seed = num_negatives, seed
        self._held_out, self._num_items = on_cpu(source.held_out), source.num_items
        users = np.append(source.users, np.arange(source.num_users))
        items = np.append(source.items, source.held_out)
        order = np.argsort(users * np.int64(source.num_items) + items)
        self._unchosen = Unchosen(users[order], items[order], source.num_users, source.num_items)
        self._most = source.num_items - int(np.bincount(users).min())

    @property
    def width(self) -> int:
        """Candidates of a user, the held-out item included."""
        return 1 + (self._count or self._most)

    def __call__(self, users: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Lists candidates.

        Args:
            users: int64 [b].

        Returns:
            Items, int32 [b, width], the held-out one first, and which of them are there, bool
            [b, width]: a user may have left fewer items than others.
        """
        free, count = self._unchosen.count(users), self.width - 1
        if self._count:
            keys = keyed_bits(self._seed, users, tf.zeros_like(users), _EVALUATION_SALT)
            ranks = distinct(tf.maximum(free, 1), keys, count)
        else:
            ranks = tf.range(count, dtype=tf.int64) + tf.zeros_like(users)[:, tf.newaxis]
        there = ranks < free[:, tf.newaxis]
        ranks = tf.where(there, ranks, 0)
        each = tf.repeat(users, count)
        drawn = tf.reshape(self._unchosen(each, tf.reshape(ranks, [-1])), [-1, count])
        held_out = tf.gather(self._held_out, users)[:, tf.newaxis]
        items = tf.where(there, tf.cast(drawn, tf.int32), held_out)
        return tf.concat([held_out, items], 1), tf.pad(
            there, [[0, 0], [1, 0]], constant_values=True
        )


def eval_users(
    source: RatingSource,
    *,
    num_negatives: int,
    global_batch_size: int,
    seed: int,
    drop_remainder: bool = False,
    input_context: tf.distribute.InputContext | None = None,
    options: PipelineOptions = PipelineOptions(),  # noqa: B008
    cache: bool = False,
) -> tf.data.Dataset:
    """Makes the pipeline of one worker's evaluation batches: each user once, in order.

    Args:
        source: The choices.
        num_negatives: Items that a held-out one is ranked among; 0 for all.
        global_batch_size: Users of a step on all replicas.
        seed: Seed of the draws.
        drop_remainder: Whether a last, part-filled batch is left out.
        input_context: Which slice of each batch to make; all of it if None.
        options: How tf.data runs it.
        cache: Whether batches stay in memory after the first pass.

    Returns:
        `({user [b], item [b, width]}, there [b, width], weights [b])`: see `Candidates`. The last
        batch is filled up with user 0 at weight 0; all other weights are 1.

    Raises:
        DataError: The batch does not divide by the replicas, or no step is left.
    """
    slices = replica_slices(global_batch_size, input_context)
    steps = checked_eval_steps(source.name, source.num_users, global_batch_size, drop_remainder)
    candidates = Candidates(source, num_negatives=num_negatives, seed=seed)
    count = slices.elements(steps)
    length = max(1, _CHUNK_PAIRS // (slices.batch_size * candidates.width))

    def chunk(first: tf.Tensor) -> Any:
        return _users(
            source, slices, candidates, tf.range(first, tf.minimum(first + length, count))
        )

    batches = _unbatched(
        tf.data.Dataset.range(0, count, length), chunk, length, options, cache=cache
    )
    batches = batches.apply(tf.data.experimental.assert_cardinality(count))
    return batches.with_options(options.tf_options())


def _users(
    source: RatingSource, slices: ReplicaSlices, candidates: Candidates, elements: tf.Tensor
) -> Any:
    positions = slices.positions(elements)
    real = positions < source.num_users
    users = tf.where(real, positions, 0)
    items, there = candidates(tf.reshape(users, [-1]))
    shape = [-1, slices.batch_size, candidates.width]
    features = {"user": tf.cast(users, tf.int32), "item": tf.reshape(items, shape)}
    return features, tf.reshape(there, shape), tf.cast(real, tf.float32)


def _unbatched(
    firsts: tf.data.Dataset,
    chunk: Callable[[tf.Tensor], Any],
    length: int,
    options: PipelineOptions,
    *,
    cache: bool = False,
) -> tf.data.Dataset:
    chunks = made_by(
        options.services, firsts, lambda d: d.map(chunk, num_parallel_calls=tf.data.AUTOTUNE)
    )
    chunks = chunks.cache() if cache else chunks
    # Before `unbatch`: handing over single small batches costs more than cutting them off.
    if options.prefetch is None:
        chunks = chunks.prefetch(tf.data.AUTOTUNE)
    elif options.prefetch:
        chunks = chunks.prefetch(-(-options.prefetch // length))
    return chunks.unbatch()
