"""The batches of a section: pipelines, and batches by step."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from orbit_runner.data.array_batches import eval_chunks, train_chunks
from orbit_runner.data.array_pipeline import eval_dataset, train_dataset
from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.source import ArraySource
from orbit_runner.data.step_batches import Chunks
from orbit_runner.tasks.keras.config import KerasDataConfig
from orbit_runner.tasks.keras.sources import W, X, Y


def train_inputs(
    source: ArraySource,
    params: KerasDataConfig,
    input_context: tf.distribute.InputContext | None,
    start_step: int | tf.Tensor,
) -> tf.data.Dataset:
    """Returns one worker's endless batches of `(x, y)`, or `(x, y, w)` if examples have weights."""
    return train_dataset(
        source,
        global_batch_size=params.global_batch_size,
        seed=params.seed or 0,
        start_step=start_step,
        shuffle=params.shuffle_buffer_size > 1,
        input_context=input_context,
        options=PipelineOptions.of(params),
        element=_example,
    )


def eval_inputs(
    source: ArraySource,
    params: KerasDataConfig,
    input_context: tf.distribute.InputContext | None,
) -> tf.data.Dataset:
    """Returns one worker's batches of `(x, y, counts)`, each example once.

    `counts` is 0 for rows that only pad the last batch, else 1. If examples have weights, it is a
    pair of counts and weights.
    """
    return eval_dataset(
        source,
        global_batch_size=params.global_batch_size,
        drop_remainder=params.drop_remainder,
        input_context=input_context,
        options=PipelineOptions.of(params),
        cache=params.cache,
        element=_counted_example,
    )


def chunks(source: ArraySource, params: KerasDataConfig, replicas: int) -> Chunks:
    """Returns the batches of `train_inputs` or `eval_inputs` by step."""
    if not params.is_training:
        return eval_chunks(
            source,
            global_batch_size=params.global_batch_size,
            replicas=replicas,
            drop_remainder=params.drop_remainder,
            element=_counted_example,
        )
    return train_chunks(
        source,
        global_batch_size=params.global_batch_size,
        seed=params.seed or 0,
        replicas=replicas,
        shuffle=params.shuffle_buffer_size > 1,
        element=_example,
    )


def _example(batch: dict[str, Any]) -> Any:
    return (batch[X], batch[Y], batch[W]) if W in batch else (batch[X], batch[Y])


def _counted_example(batch: dict[str, Any], count: tf.Tensor) -> Any:
    return batch[X], batch[Y], (count, batch[W]) if W in batch else count
