"""The pipelines of pairs for training, and of users for evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.data.ratings.pipeline import eval_users, pair_chunks, train_pairs, user_chunks
from orbit_runner.data.step_batches import Chunks
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
    return train_pairs(
        load_source(params),
        start_step=start_step,
        input_context=input_context,
        options=PipelineOptions.from_config(params),
        **_train_settings(params, excluded),
    )


def chunks(
    params: RatingTrainData | RatingEvalData, replicas: int, excluded: np.ndarray = NO_EXAMPLES
) -> Chunks:
    """Returns the batches of `train_inputs` or `eval_inputs` by step."""
    source = load_source(params)
    if isinstance(params, RatingTrainData):
        return pair_chunks(source, replicas=replicas, **_train_settings(params, excluded))
    return user_chunks(source, replicas=replicas, **_eval_settings(params))


def eval_inputs(
    params: RatingEvalData, input_context: tf.distribute.InputContext | None
) -> tf.data.Dataset:
    """Returns one worker's evaluation batches of `({user, item}, mask, weight)`, each user once.

    See `Candidates` for the items of a user.
    """
    return eval_users(
        load_source(params),
        input_context=input_context,
        options=PipelineOptions.from_config(params),
        cache=params.cache,
        **_eval_settings(params),
    )


def _eval_settings(params: RatingEvalData) -> dict[str, Any]:
    return {
        "num_negatives": params.num_eval_negatives,
        "global_batch_size": params.global_batch_size,
        "seed": params.seed or 0,
        "drop_remainder": params.drop_remainder,
    }


def _train_settings(params: RatingTrainData, excluded: np.ndarray) -> dict[str, Any]:
    return {
        "num_negatives": params.num_negatives,
        "global_batch_size": params.global_batch_size,
        "seed": params.seed or 0,
        "shuffle": params.shuffle_buffer_size > 1,
        "excluded": excluded,
    }
