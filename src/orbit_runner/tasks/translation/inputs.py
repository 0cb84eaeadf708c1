"""The pipeline that feeds a section's pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.text.buckets import steps_per_epoch
from orbit_runner.data.text.pipeline import eval_pairs, train_pairs, train_pairs_at
from orbit_runner.data.text.source import PairSource
from orbit_runner.tasks.translation.config import TranslationDataConfig

Batch = dict[str, tf.Tensor]


def train_inputs(
    params: TranslationDataConfig,
    source: PairSource,
    input_context: tf.distribute.InputContext | None,
    start_step: int | tf.Tensor,
) -> tf.data.Dataset:
    """Makes one worker's training batches.

    Args:
        params: The section.
        source: Its pairs.
        input_context: Which slice of each global batch this pipeline makes.
        start_step: The step of the first batch.

    Returns:
        An endless data set of features and labels: `inputs` and `targets`, int32 [batch, length];
        `targets` again, and `share`, float32 [batch], by which the cross entropies of a row's
        tokens count: rows over tokens of the global batch.
    """
    return train_pairs(
        source,
        start_step=start_step,
        shuffle=params.shuffle_buffer_size > 1,
        seed=params.seed or 0,
        input_context=input_context,
        options=PipelineOptions.of(params),
        element=_training_element,
        **_batching(params),
    )


def train_batch_at(params: TranslationDataConfig, source: PairSource) -> Callable[[tf.Tensor], Any]:
    """Makes what gives single training batches by their steps.

    Args:
        params: The section.
        source: Its pairs.

    Returns:
        A function from the number of a step to what `train_inputs` gives for it.
    """
    return train_pairs_at(
        source,
        shuffle=params.shuffle_buffer_size > 1,
        seed=params.seed or 0,
        element=_training_element,
        **_batching(params),
    )


def eval_inputs(
    params: TranslationDataConfig,
    source: PairSource,
    input_context: tf.distribute.InputContext | None,
) -> tf.data.Dataset:
    """Makes one worker's evaluation batches.

    Args:
        params: The section.
        source: Its pairs.
        input_context: Which slice of each global batch this pipeline makes.

    Returns:
        A data set of features, labels and weights: `inputs` and `targets`; `targets` again, and
        `id`, int64 [batch], the numbers of the pairs; float32 [batch]. Each pair once.
    """
    return eval_pairs(
        source,
        global_batch_size=params.global_batch_size,
        max_length=params.max_seq_length,
        static_shapes=params.static_batch,
        drop_remainder=params.drop_remainder,
        input_context=input_context,
        options=PipelineOptions.of(params),
        cache=params.cache,
        element=_evaluation_element,
    )


def batches_per_epoch(params: TranslationDataConfig, source: PairSource) -> float:
    """Returns how many training batches show each pair once.

    Args:
        params: The section.
        source: Its pairs.
    """
    return steps_per_epoch(source, **_batching(params))


def _training_element(batch: Batch) -> tuple[Batch, Batch]:
    targets = batch["targets"]
    features = {"inputs": batch["inputs"], "targets": targets}
    return features, {"targets": targets, "share": batch["share"]}


def _evaluation_element(batch: Batch, weights: tf.Tensor) -> tuple[Batch, Batch, tf.Tensor]:
    features = {"inputs": batch["inputs"], "targets": batch["targets"]}
    return features, {"targets": batch["targets"], "id": batch["id"]}, weights


def _batching(params: TranslationDataConfig) -> dict[str, Any]:
    by_tokens = bool(params.batch_tokens)
    return {
        "batch_tokens": params.batch_tokens if by_tokens else None,
        "global_batch_size": None if by_tokens else params.global_batch_size,
        "max_length": params.max_seq_length,
        "static_shapes": params.static_batch,
        "rows_multiple": params.batch_rows_multiple,
    }
