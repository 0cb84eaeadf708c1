"""Cuts the input pipelines of tasks into the shards of logical replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

Build = Callable[[tf.distribute.InputContext], tf.data.Dataset]


def sharded_inputs(
    build: Build, context: tf.distribute.InputContext, logical: int
) -> tf.data.Dataset:
    """Returns the batches of one pipeline's devices, each the neighboring shards of a device.

    `build` returns the dataset of an input context; it is that of `logical` replicas with one
    pipeline, so each element is a shard. Every pipeline makes all shards and keeps its own, because
    which examples are in a shard must not depend on the number of pipelines.
    """
    dataset = _keep_own(build(tf.distribute.InputContext(1, 0, logical)), context, logical)
    each = logical // context.num_replicas_in_sync
    if each == 1:
        return dataset
    return dataset.batch(each, drop_remainder=True).map(_join_shards)


def single_shards(
    build: Build, context: tf.distribute.InputContext, logical: int
) -> tf.data.Dataset:
    """Returns one pipeline's share of the shards, each of which is an element of its own.

    Each step takes one shard for each device, in the order of the data. Unlike the shards of
    `sharded_inputs`, they may have different shapes, and the last ones may be missing.
    """
    dataset = build(tf.distribute.InputContext(1, 0, logical))
    return _keep_own(dataset, context, context.num_replicas_in_sync)


def _keep_own(
    dataset: tf.data.Dataset, context: tf.distribute.InputContext, shards: int
) -> tf.data.Dataset:
    """Returns one pipeline's part of each `shards` neighboring elements."""
    own = shards // context.num_input_pipelines
    if own == shards:
        return dataset
    place = tf.constant(context.input_pipeline_id, tf.int64)
    kept = dataset.enumerate().filter(lambda index, *_: tf.equal(index % shards // own, place))
    kept = kept.map(lambda _, element: element)
    if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        # Otherwise, the cardinality of a filtered dataset is not known.
        kept = kept.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
    return kept


def _join_shards(*batch: Any) -> Any:
    """Returns one batch of several shards: tensors [shards · rows, …]."""
    joined = tf.nest.map_structure(_join, batch)
    return joined[0] if len(joined) == 1 else joined


def _join(tensor: tf.Tensor) -> tf.Tensor:
    return tf.reshape(tensor, tf.concat([[-1], tf.shape(tensor)[2:]], axis=0))
