"""Pipelines of tf.data over arrays in memory, in which a batch is a function of (seed, step)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from orbit_runner.data.array_batches import eval_chunks, train_chunks
from orbit_runner.data.augment import CropFlip
from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.sampling.sharding import replica_slices
from orbit_runner.data.source import ArraySource
from orbit_runner.data.tf_pipeline import endless, one_pass

__all__ = ["PipelineOptions", "eval_dataset", "train_dataset"]

_Tree = dict[str, Any]


def train_dataset(
    source: ArraySource,
    *,
    global_batch_size: int,
    seed: int,
    start_step: int | tf.Tensor = 0,
    shuffle: bool = True,
    augmentation: CropFlip | None = None,
    input_context: tf.distribute.InputContext | None = None,
    options: PipelineOptions = PipelineOptions(),  # noqa: B008
    element: Callable[[_Tree], Any] | None = None,
) -> tf.data.Dataset:
    """Makes the endless pipeline of one worker's training batches.

    The examples of a step depend on `seed` and the step alone: not on where training started, nor
    on the number of replicas. To be distributed by `strategy.distribute_datasets_from_function`.

    Args:
        source: The examples.
        global_batch_size: Examples of a step on all replicas.
        seed: Seed of the order and of the augmentation.
        start_step: The step of the first batch; in a graph, an int64 scalar tensor as well.
        shuffle: Whether each epoch has an order of its own; as stored otherwise.
        augmentation: How to vary `image`, if at all.
        input_context: Which slice of each batch to make; all of it if None.
        options: How tf.data runs it.
        element: Turns a batch into another structure of the same tensors, such as a tuple. Cheaper
            here than in a `map` afterwards, which costs each step.

    Returns:
        Batches for one replica, with the structure of the source and static shapes
        [global_batch_size // replicas, ...].

    Raises:
        DataError: The batch does not divide by the replicas, or there are no images to augment.
    """
    slices = replica_slices(global_batch_size, input_context)
    chunks = train_chunks(
        source,
        global_batch_size=global_batch_size,
        replicas=slices.replicas_in_sync,
        seed=seed,
        shuffle=shuffle,
        augmentation=augmentation,
        element=element,
    )
    return endless(chunks, slices, start_step, options)


def eval_dataset(
    source: ArraySource,
    *,
    global_batch_size: int,
    drop_remainder: bool = False,
    input_context: tf.distribute.InputContext | None = None,
    options: PipelineOptions = PipelineOptions(),  # noqa: B008
    cache: bool = False,
    element: Callable[[_Tree, tf.Tensor], Any] | None = None,
) -> tf.data.Dataset:
    """Makes the pipeline of one worker's evaluation batches: each example once, in order.

    Args:
        source: The examples.
        global_batch_size: Examples of a step on all replicas.
        drop_remainder: Whether a last, part-filled batch is left out.
        input_context: Which slice of each batch to make; all of it if None.
        options: How tf.data runs it.
        cache: Whether batches stay in memory after the first pass.
        element: Turns a batch and its weights into another structure of the same tensors.

    Returns:
        Pairs of a batch for one replica, as in training, and float32 weights
        [global_batch_size // replicas]. The last batch is filled up with example 0 at weight 0;
        all other weights are 1.

    Raises:
        DataError: The batch does not divide by the replicas, or no step is left.
    """
    slices = replica_slices(global_batch_size, input_context)
    chunks = eval_chunks(
        source,
        global_batch_size=global_batch_size,
        replicas=slices.replicas_in_sync,
        drop_remainder=drop_remainder,
        element=element,
    )
    return one_pass(chunks, slices, options, cache=cache)
