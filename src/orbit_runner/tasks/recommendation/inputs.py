"""The pipelines of pairs to train on, and of users to evaluate."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.ratings.pipeline import eval_users, train_pairs
from orbit_runner.data.ratings.step_batches import pair_chunks, user_chunks
from orbit_runner.data.step_batches import Chunks
from orbit_runner.tasks.recommendation.config import RatingEvalData, RatingTrainData
from orbit_runner.tasks.recommendation.sources import load_source


def train_inputs(
    params: RatingTrainData,
    input_context: tf.distribute.InputContext | None,
    start_step: int | tf.Tensor,
) -> tf.data.Dataset:
    """Makes one worker's training batches.

    Args:
        params: The section.
        input_context: Which slice of each global batch this pipeline makes.
        start_step: The step of the first batch.

    Returns:
        An endless data set of `({user, item}, label)`.
    """
    return train_pairs(
        load_source(params),
        start_step=start_step,
        input_context=input_context,
        options=PipelineOptions.of(params),
        **_settings(params),
    )


def chunks(params: RatingTrainData | RatingEvalData, replicas: int) -> Chunks:
    """Makes what gives batches by their steps.

    Args:
        params: The section.
        replicas: Replicas in sync.

    Returns:
        The batches of `train_inputs` or `eval_inputs`.
    """
    source = load_source(params)
    if isinstance(params, RatingTrainData):
        return pair_chunks(source, replicas=replicas, **_settings(params))
    return user_chunks(source, replicas=replicas, **_eval_settings(params))


def eval_inputs(
    params: RatingEvalData, input_context: tf.distribute.InputContext | None
) -> tf.data.Dataset:
    """Makes one worker's evaluation batches.

    Args:
        params: The section.
        input_context: Which slice of each global batch this pipeline makes.

    Returns:
        A data set of `({user, item}, there, weight)`, each user once; see `Candidates`.
    """
    return eval_users(
        load_source(params),
        input_context=input_context,
        options=PipelineOptions.of(params),
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


def _settings(params: RatingTrainData) -> dict[str, Any]:
    return {
        "num_negatives": params.num_negatives,
        "global_batch_size": params.global_batch_size,
        "seed": params.seed or 0,
        "shuffle": params.shuffle_buffer_size > 1,
    }
