"""Pipelines of pairs of users and items, in which a batch is a function of (seed, step)."""

from __future__ import annotations

import tensorflow as tf

from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.ratings.interactions import RatingSource
from orbit_runner.data.ratings.step_batches import pair_chunks, user_chunks
from orbit_runner.data.sampling.sharding import replica_slices
from orbit_runner.data.tf_pipeline import endless, one_pass


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
    chunks = pair_chunks(
        source,
        num_negatives=num_negatives,
        global_batch_size=global_batch_size,
        replicas=slices.replicas_in_sync,
        seed=seed,
        shuffle=shuffle,
    )
    return endless(chunks, slices, start_step, options)


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
    chunks = user_chunks(
        source,
        num_negatives=num_negatives,
        global_batch_size=global_batch_size,
        replicas=slices.replicas_in_sync,
        seed=seed,
        drop_remainder=drop_remainder,
    )
    return one_pass(chunks, slices, options, cache=cache)
