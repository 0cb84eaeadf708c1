"""The pipeline that feeds a section's data set, in memory or streamed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from orbit_runner.config.data import DataConfig, service_addresses
from orbit_runner.data.augment import CropFlip
from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.pipeline import eval_dataset, train_batches, train_dataset
from orbit_runner.data.tfrecord.pipeline import eval_records, train_records
from orbit_runner.data.tfrecord.source import RecordSource
from orbit_runner.tasks.image_classification.sources import load_source


def train_inputs(
    params: DataConfig,
    input_context: tf.distribute.InputContext | None,
    start_step: int | tf.Tensor,
    num_classes: int,
) -> tf.data.Dataset:
    """Makes one worker's training batches.

    Args:
        params: The section.
        input_context: Which slice of each global batch this pipeline makes.
        start_step: The step of the first batch.
        num_classes: One more than the largest label.

    Returns:
        An endless data set of `(image, label)`.
    """
    source = load_source(params)
    settings = _train_settings(params) | {
        "start_step": start_step,
        "input_context": input_context,
        "options": _pipeline_options(params),
    }
    if isinstance(source, RecordSource):
        return train_records(
            source,
            shuffle_buffer_size=params.shuffle_buffer_size,
            num_classes=num_classes,
            **settings,
        )
    return train_dataset(source, shuffle=params.shuffle_buffer_size > 1, **settings)


def train_batch_at(params: DataConfig) -> Callable[[tf.Tensor], Any] | None:
    """Makes what gives single training batches by their steps.

    Args:
        params: The section.

    Returns:
        A function from the number of a step to `(image, label)`; None for data that is streamed.
    """
    source = load_source(params)
    if isinstance(source, RecordSource):
        return None
    shuffle = params.shuffle_buffer_size > 1
    return train_batches(source, shuffle=shuffle, **_train_settings(params))


def _train_settings(params: DataConfig) -> dict[str, Any]:
    return {
        "global_batch_size": params.global_batch_size,
        "seed": params.seed or 0,
        "augmentation": _augmentation(params),
        "element": lambda batch: (batch["image"], batch["label"]),
    }


def eval_inputs(
    params: DataConfig, input_context: tf.distribute.InputContext | None, num_classes: int
) -> tf.data.Dataset:
    """Makes one worker's evaluation batches.

    Args:
        params: The section.
        input_context: Which slice of each global batch this pipeline makes.
        num_classes: One more than the largest label.

    Returns:
        A data set of `(image, label, weight)`, each example once.
    """
    source = load_source(params)
    settings: dict[str, Any] = {
        "global_batch_size": params.global_batch_size,
        "drop_remainder": params.drop_remainder,
        "input_context": input_context,
        "options": _pipeline_options(params),
        "cache": params.cache,
        "element": lambda batch, weight: (batch["image"], batch["label"], weight),
    }
    if isinstance(source, RecordSource):
        return eval_records(source, num_classes=num_classes, **settings)
    return eval_dataset(source, **settings)


def _augmentation(params: DataConfig) -> CropFlip | None:
    if params.augment == "none":
        return None
    return CropFlip(padding=params.augment_padding, flip=params.augment == "crop_flip")


def _pipeline_options(params: DataConfig) -> PipelineOptions:
    return PipelineOptions(
        prefetch=params.prefetch_buffer_size,
        deterministic=params.deterministic,
        ram_budget_gb=params.ram_budget,
        autotune_algorithm=params.autotune_algorithm,
        services=service_addresses(params),
    )
