"""Batches made by tf.data services on other machines, in the order in which one process makes them.

A dispatcher with several workers would hand out each worker's batches as they come. Here each
service has one worker, makes every n-th piece of the pipeline, and the pieces are taken in turn.
So the order stays a function of (seed, step), and a resumed run gets the batches it would have got.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

Stage = Callable[[tf.data.Dataset], tf.data.Dataset]


def apply_on_services(
    services: Sequence[str], pieces: tf.data.Dataset, make: Stage
) -> tf.data.Dataset:
    """Applies the costly part of a pipeline, on services where there are any.

    Args:
        services: Their addresses, `grpc://host:port`; none to do it here.
        pieces: What is cheap to make: each service makes all of it, and keeps its own.
        make: The costly part, one element out for each one in.

    Returns:
        `make(pieces)`, in its order.
    """
    if not services:
        return make(pieces)
    count, options = len(services), tf.data.Options()
    # The service's own iterators: taken apart, they now and then wait for as long as they have
    # lived, as `train/inputs/distribute.py` says.
    options.autotune.enabled = False
    parts = [
        make(pieces.shard(count, index))
        .with_options(options)
        .apply(
            tf.data.experimental.service.distribute(
                tf.data.experimental.service.ShardingPolicy.OFF, service, compression=None
            )
        )
        for index, service in enumerate(services)
    ]
    if count == 1:
        return parts[0]
    turns = tf.data.Dataset.range(count).repeat()
    return tf.data.Dataset.choose_from_datasets(parts, turns, stop_on_empty_dataset=True)
