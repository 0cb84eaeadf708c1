"""The pipelines of pairs to train on, and of users to evaluate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.ratings.pipeline import eval_users, train_pairs, train_pairs_at
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


def train_batch_at(params: RatingTrainData) -> Callable[[tf.Tensor], Any]:
    """Makes what gives single training batches by their steps.

    Args:
        params: The section.

    Returns:
        A function from the number of a step to `({user, item}, label)`.
    """
    return train_pairs_at(load_source(params), **_settings(params))


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
        num_negatives=params.num_eval_negatives,
        global_batch_size=params.global_batch_size,
        seed=params.seed or 0,
        drop_remainder=params.drop_remainder,
        input_context=input_context,
        options=PipelineOptions.of(params),
        cache=params.cache,
    )


def _settings(params: RatingTrainData) -> dict[str, Any]:
    return {
        "num_negatives": params.num_negatives,
        "global_batch_size": params.global_batch_size,
        "seed": params.seed or 0,
        "shuffle": params.shuffle_buffer_size > 1,
    }
