"""The pipelines of pairs for training, and of users for evaluation."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.data.order.sharding import replica_slices
from orbit_runner.data.ratings.step_batches import pair_chunks, user_chunks
from orbit_runner.data.step_batches import Chunks, endless_dataset, one_pass_dataset
from orbit_runner.tasks.recommendation.config import RatingEvalData, RatingTrainData
from orbit_runner.tasks.recommendation.sources import load_source


def train_inputs(
    params: RatingTrainData,
    input_context: tf.distribute.InputContext | None,
    start_step: int | tf.Tensor,
    excluded: np.ndarray = NO_EXAMPLES,
) -> tf.data.Dataset:
    """Returns one worker's endless training batches of `({user, item}, label)`.

    `start_step` is the step of the first batch. `excluded`, int64 [k], are the examples to leave
    out.
    """
    slices = replica_slices(params.global_batch_size, input_context)
    batches = chunks(params, slices.replicas_in_sync, excluded)
    return endless_dataset(batches, slices, start_step, PipelineOptions.from_config(params))


def chunks(
    params: RatingTrainData | RatingEvalData, replicas: int, excluded: np.ndarray = NO_EXAMPLES
) -> Chunks:
    """Returns the batches of `train_inputs` or `eval_inputs` by step."""
    source = load_source(params)
    size, seed = params.global_batch_size, params.seed or 0
    if isinstance(params, RatingTrainData):
        return pair_chunks(
            source,
            num_negatives=params.num_negatives,
            global_batch_size=size,
            seed=seed,
            replicas=replicas,
            shuffle=params.shuffle_buffer_size > 1,
            excluded=excluded,
        )
    return user_chunks(
        source,
        num_negatives=params.num_eval_negatives,
        global_batch_size=size,
        seed=seed,
        replicas=replicas,
        drop_remainder=params.drop_remainder,
    )


def eval_inputs(
    params: RatingEvalData, input_context: tf.distribute.InputContext | None
) -> tf.data.Dataset:
    """Returns one worker's evaluation batches of `({user, item}, mask, weight)`, each user once.

    See `Candidates` for the items of a user.
    """
    slices = replica_slices(params.global_batch_size, input_context)
    batches = chunks(params, slices.replicas_in_sync)
    options = PipelineOptions.from_config(params)
    return one_pass_dataset(batches, slices, options, cache=params.cache)
