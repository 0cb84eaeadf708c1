"""tf.data pipelines over in-memory arrays, in which a batch is a function of (seed, step)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from orbit_runner.data.array_batches import eval_chunks, train_chunks
from orbit_runner.data.augment import CropFlip
from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.data.order.mixture import Mixture
from orbit_runner.data.order.sharding import replica_slices
from orbit_runner.data.source import ArraySource
from orbit_runner.data.tf_pipeline import endless_dataset, one_pass_dataset

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors

__all__ = ["PipelineOptions", "eval_dataset", "train_dataset"]

_Tree = dict[str, Any]


def train_dataset(
    source: ArraySource,
    *,
    global_batch_size: int,
    seed: int,
    start_step: int | tf.Tensor = 0,
    shuffle: bool = True,
    excluded: np.ndarray = NO_EXAMPLES,
    mixture: Mixture | None = None,
    augmentation: CropFlip | None = None,
    input_context: tf.distribute.InputContext | None = None,
    options: PipelineOptions = PipelineOptions(),
    element: Callable[[_Tree], Tensors] | None = None,
) -> tf.data.Dataset:
    """Returns the endless dataset of one worker's training batches.

    The examples of a step depend only on `seed` and the step, not on the step at which training
    started or on the number of replicas. Distribute the dataset with
    `strategy.distribute_datasets_from_function`.

    Args:
        source: The examples.
        global_batch_size: Number of examples per step, on all replicas.
        seed: Seed of the order and of the augmentation.
        start_step: The step of the first batch. In a graph, it can be an int64 scalar tensor.
        shuffle: Whether to shuffle each epoch. If False, examples keep their stored order.
        excluded: Indices of the examples to leave out, int64 [k], ascending.
        mixture: The groups that examples are drawn from; they must not contain `excluded`. If None,
            each epoch has each example once.
        augmentation: The random crop and flip of `image`. None for no augmentation.
        input_context: Selects the worker's slice of each batch. If None, the whole batch is used.
        options: Options of the tf.data pipeline.
        element: Converts a batch into another structure of the same tensors, such as a tuple. This
            is cheaper than a `map` of the returned dataset, which takes time in each step.

    Returns:
        Batches for one replica, with the structure of the source and static shapes
        [global_batch_size // replicas, ...].

    Raises:
        DataError: The batch is not divisible by the number of replicas, or there are no images to
            augment.
    """
    slices = replica_slices(global_batch_size, input_context)
    chunks = train_chunks(
        source,
        global_batch_size=global_batch_size,
        replicas=slices.replicas_in_sync,
        seed=seed,
        shuffle=shuffle,
        excluded=excluded,
        mixture=mixture,
        augmentation=augmentation,
        element=element,
    )
    return endless_dataset(chunks, slices, start_step, options)


def eval_dataset(
    source: ArraySource,
    *,
    global_batch_size: int,
    drop_remainder: bool = False,
    input_context: tf.distribute.InputContext | None = None,
    options: PipelineOptions = PipelineOptions(),
    cache: bool = False,
    element: Callable[[_Tree, tf.Tensor], Tensors] | None = None,
) -> tf.data.Dataset:
    """Returns the dataset of one worker's evaluation batches: each example once, in order.

    Args:
        source: The examples.
        global_batch_size: Number of examples per step, on all replicas.
        drop_remainder: Whether to drop a last batch that is not full.
        input_context: Selects the worker's slice of each batch. If None, the whole batch is used.
        options: Options of the tf.data pipeline.
        cache: Whether to keep the batches in memory after the first pass.
        element: Converts a batch and its weights into another structure of the same tensors.

    Returns:
        Pairs of a batch for one replica, as in training, and float32 weights
        [global_batch_size // replicas]. The last batch is padded with copies of example 0, whose
        weight is 0. All other weights are 1.

    Raises:
        DataError: The batch is not divisible by the number of replicas, or `drop_remainder` leaves
            no batch.
    """
    slices = replica_slices(global_batch_size, input_context)
    chunks = eval_chunks(
        source,
        global_batch_size=global_batch_size,
        replicas=slices.replicas_in_sync,
        drop_remainder=drop_remainder,
        element=element,
    )
    return one_pass_dataset(chunks, slices, options, cache=cache)
