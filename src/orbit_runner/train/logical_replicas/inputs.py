"""Cuts the input pipelines of tasks that cannot start at a given step into shards."""

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
    dataset = build(tf.distribute.InputContext(1, 0, logical))
    own = logical // context.num_input_pipelines
    if own < logical:
        place = tf.constant(context.input_pipeline_id, tf.int64)
        dataset = dataset.enumerate()
        dataset = dataset.filter(lambda index, _: tf.equal(index % logical // own, place))
        dataset = dataset.map(lambda _, *shard: shard[0] if len(shard) == 1 else shard)
    each = logical // context.num_replicas_in_sync
    if each == 1:
        return dataset
    return dataset.batch(each, drop_remainder=True).map(_join_shards)


def _join_shards(*batch: Any) -> Any:
    """Returns one batch of several shards: tensors [shards · rows, …]."""
    joined = tf.nest.map_structure(_join, batch)
    return joined[0] if len(joined) == 1 else joined


def _join(tensor: tf.Tensor) -> tf.Tensor:
    return tf.reshape(tensor, tf.concat([[-1], tf.shape(tensor)[2:]], axis=0))
