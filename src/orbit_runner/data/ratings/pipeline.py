"""Datasets of pairs of users and items, in which a batch is a function of (seed, step)."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.data.order.sharding import replica_slices
from orbit_runner.data.ratings.interactions import RatingSource
from orbit_runner.data.ratings.step_batches import pair_chunks, user_chunks
from orbit_runner.data.tf_pipeline import endless_dataset, one_pass_dataset


def train_pairs(
    source: RatingSource,
    *,
    num_negatives: int,
    global_batch_size: int,
    seed: int,
    start_step: int | tf.Tensor = 0,
    shuffle: bool = True,
    excluded: np.ndarray = NO_EXAMPLES,
    input_context: tf.distribute.InputContext | None = None,
    options: PipelineOptions = PipelineOptions(),
) -> tf.data.Dataset:
    """Returns the infinite dataset of one worker's training batches.

    An element is `({user, item}, label)` for one replica, [global_batch_size // replicas]. The
    dataset has `num_negatives` negative examples per interaction. In a graph, `start_step` may be
    an int64 scalar tensor. If `shuffle` is false, examples are in stored order. `excluded`,
    int64 [k], are the examples to leave out, ascending. If `input_context` is None, an element is
    the global batch. Raises DataError if the global batch size is not a multiple of the number of
    replicas.
    """
    slices = replica_slices(global_batch_size, input_context)
    chunks = pair_chunks(
        source,
        num_negatives=num_negatives,
        global_batch_size=global_batch_size,
        replicas=slices.replicas_in_sync,
        seed=seed,
        shuffle=shuffle,
        excluded=excluded,
    )
    return endless_dataset(chunks, slices, start_step, options)


def eval_users(
    source: RatingSource,
    *,
    num_negatives: int,
    global_batch_size: int,
    seed: int,
    drop_remainder: bool = False,
    input_context: tf.distribute.InputContext | None = None,
    options: PipelineOptions = PipelineOptions(),
    cache: bool = False,
) -> tf.data.Dataset:
    """Returns the dataset of one worker's evaluation batches: each user once, in order.

    An element is `({user [b], item [b, width]}, valid [b, width], weights [b])` for one replica, as
    described in `Candidates`. The last batch is padded with user 0, whose weight is 0; all other
    weights are 1. If `cache` is true, batches are kept in memory after the first pass. Raises
    DataError if the global batch size is not a multiple of the number of replicas, or if there is
    no step.
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
    return one_pass_dataset(chunks, slices, options, cache=cache)
