"""The pipeline of a section's sentence pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.data.text.buckets import steps_per_epoch
from orbit_runner.data.text.pipeline import eval_pairs, make_train_pair_reader, train_pairs
from orbit_runner.data.text.source import PairSource
from orbit_runner.tasks.translation.config import TranslationDataConfig

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors

Batch = dict[str, tf.Tensor]


def train_inputs(
    params: TranslationDataConfig,
    source: PairSource,
    input_context: tf.distribute.InputContext | None,
    start_step: int | tf.Tensor,
    excluded: np.ndarray = NO_EXAMPLES,
) -> tf.data.Dataset:
    """Returns one worker's endless training batches of features and labels.

    Features are `inputs` and `targets`, int32 [batch, length]. Labels are `targets` and `share`,
    float32 [batch], the factor of the cross entropy of a row's tokens: the number of rows divided
    by the number of tokens in the global batch. `start_step` is the step of the first batch.
    `excluded`, int64 [k], are the pairs to leave out.
    """
    return train_pairs(
        source,
        start_step=start_step,
        shuffle=params.shuffle_buffer_size > 1,
        seed=params.seed or 0,
        excluded=excluded,
        input_context=input_context,
        options=PipelineOptions.from_config(params),
        element=_training_element,
        **_batch_settings(params),
    )


def make_train_batch_function(
    params: TranslationDataConfig, source: PairSource, excluded: np.ndarray = NO_EXAMPLES
) -> Callable[[tf.Tensor], Tensors]:
    """Returns a function from the number of a step to the batch of `train_inputs` for it."""
    return make_train_pair_reader(
        source,
        shuffle=params.shuffle_buffer_size > 1,
        seed=params.seed or 0,
        excluded=excluded,
        element=_training_element,
        **_batch_settings(params),
    )


def eval_inputs(
    params: TranslationDataConfig,
    source: PairSource,
    input_context: tf.distribute.InputContext | None,
) -> tf.data.Dataset:
    """Returns one worker's evaluation batches of features, labels and weights, each pair once.

    Features are `inputs` and `targets`, int32 [batch, length]. Labels are `targets` and `id`, int64
    [batch], the numbers of the pairs. Weights are float32 [batch].
    """
    return eval_pairs(
        source,
        global_batch_size=params.global_batch_size,
        max_length=params.max_seq_length,
        static_shapes=params.static_batch,
        drop_remainder=params.drop_remainder,
        input_context=input_context,
        options=PipelineOptions.from_config(params),
        cache=params.cache,
        element=_evaluation_element,
    )


def batches_per_epoch(
    params: TranslationDataConfig, source: PairSource, excluded: int = 0
) -> float:
    """Returns the number of training batches in which each pair occurs once.

    `excluded` is the number of pairs that are left out.
    """
    return steps_per_epoch(source, excluded=excluded, **_batch_settings(params))


def _training_element(batch: Batch) -> tuple[Batch, Batch]:
    targets = batch["targets"]
    features = {"inputs": batch["inputs"], "targets": targets}
    return features, {"targets": targets, "share": batch["share"]}


def _evaluation_element(batch: Batch, weights: tf.Tensor) -> tuple[Batch, Batch, tf.Tensor]:
    features = {"inputs": batch["inputs"], "targets": batch["targets"]}
    return features, {"targets": batch["targets"], "id": batch["id"]}, weights


def _batch_settings(params: TranslationDataConfig) -> dict[str, Any]:
    by_tokens = bool(params.batch_tokens)
    return {
        "batch_tokens": params.batch_tokens if by_tokens else None,
        "global_batch_size": None if by_tokens else params.global_batch_size,
        "max_length": params.max_seq_length,
        "static_shapes": params.static_batch,
        "rows_multiple": params.batch_rows_multiple,
    }
