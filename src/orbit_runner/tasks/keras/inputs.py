"""The batches of a section: pipelines, and batches by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from orbit_runner.data.order.mixture import Mixture
from orbit_runner.data.source import ArraySource
from orbit_runner.data.step_batches import Chunks
from orbit_runner.tasks import array_inputs
from orbit_runner.tasks.keras.config import KerasDataConfig
from orbit_runner.tasks.keras.sources import W, X, Y


def train_inputs(
    source: ArraySource,
    params: KerasDataConfig,
    input_context: tf.distribute.InputContext | None,
    start_step: int | tf.Tensor,
    excluded: np.ndarray,
    mixture: Mixture | None = None,
) -> tf.data.Dataset:
    """Returns one worker's endless batches of `(x, y)`, or `(x, y, w)` if examples have weights."""
    return array_inputs.train_inputs(
        source,
        params,
        input_context,
        start_step,
        excluded=excluded,
        mixture=mixture,
        element=_train_element,
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
    return array_inputs.eval_inputs(source, params, input_context, element=_eval_element)


def chunks(
    source: ArraySource,
    params: KerasDataConfig,
    replicas: int,
    excluded: np.ndarray,
    mixture: Mixture | None = None,
) -> Chunks:
    """Returns the batches of `train_inputs` or `eval_inputs` by step."""
    return array_inputs.step_chunks(
        source,
        params,
        replicas,
        excluded=excluded,
        mixture=mixture,
        element=_train_element,
        eval_element=_eval_element,
    )


def _train_element(batch: dict[str, Any]) -> Any:
    return (batch[X], batch[Y], batch[W]) if W in batch else (batch[X], batch[Y])


def _eval_element(batch: dict[str, Any], count: tf.Tensor) -> Any:
    return batch[X], batch[Y], (count, batch[W]) if W in batch else count
