"""The batches of a section whose examples are arrays in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from orbit_runner.config.schema.data import DataConfig
from orbit_runner.data.array_batches import eval_chunks, train_chunks
from orbit_runner.data.array_pipeline import eval_dataset, train_dataset
from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.order.mixture import Mixture
from orbit_runner.data.source import ArraySource
from orbit_runner.data.step_batches import Chunks

Element = Callable[[dict[str, Any]], Any]
# From a batch and the weights of its rows, 0 for those that only fill it up.
EvalElement = Callable[[dict[str, Any], tf.Tensor], Any]


def train_inputs(
    source: ArraySource,
    params: DataConfig,
    input_context: tf.distribute.InputContext | None,
    start_step: int | tf.Tensor,
    *,
    excluded: np.ndarray,
    mixture: Mixture | None = None,
    element: Element,
) -> tf.data.Dataset:
    """Returns one worker's endless training batches, each converted by `element`.

    `start_step` is the step of the first batch. `excluded`, int64 [k], are the examples to leave
    out; a `mixture` is without them.
    """
    return train_dataset(
        source,
        start_step=start_step,
        input_context=input_context,
        options=PipelineOptions.from_config(params),
        **_train_settings(params, excluded, mixture, element),
    )


def eval_inputs(
    source: ArraySource,
    params: DataConfig,
    input_context: tf.distribute.InputContext | None,
    *,
    element: EvalElement,
) -> tf.data.Dataset:
    """Returns one worker's evaluation batches, each example once, converted by `element`."""
    return eval_dataset(
        source,
        input_context=input_context,
        options=PipelineOptions.from_config(params),
        cache=params.cache,
        **_eval_settings(params, element),
    )


def step_chunks(
    source: ArraySource,
    params: DataConfig,
    replicas: int,
    *,
    excluded: np.ndarray,
    mixture: Mixture | None = None,
    element: Element,
    eval_element: EvalElement,
) -> Chunks:
    """Returns the batches of `train_inputs` or `eval_inputs` by step."""
    if params.is_training:
        settings = _train_settings(params, excluded, mixture, element)
        return train_chunks(source, replicas=replicas, **settings)
    return eval_chunks(source, replicas=replicas, **_eval_settings(params, eval_element))


def _train_settings(
    params: DataConfig, excluded: np.ndarray, mixture: Mixture | None, element: Element
) -> dict[str, Any]:
    return {
        "global_batch_size": params.global_batch_size,
        "seed": params.seed or 0,
        "shuffle": params.shuffle_buffer_size > 1,
        "excluded": excluded,
        "mixture": mixture,
        "element": element,
    }


def _eval_settings(params: DataConfig, element: EvalElement) -> dict[str, Any]:
    return {
        "global_batch_size": params.global_batch_size,
        "drop_remainder": params.drop_remainder,
        "element": element,
    }
