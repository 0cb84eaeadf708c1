"""Batches made by tf.data services on other machines, in the same order as in a single process.

A dispatcher with several workers would return the batches of each worker as they arrive. Here, each
service has one worker and makes every n-th element of the pipeline, and the elements are taken in
turn. So the order stays a function of (seed, step), and a resumed run gets the batches that it
would have gotten without the interruption.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

Stage = Callable[[tf.data.Dataset], tf.data.Dataset]


def apply_on_services(
    services: Sequence[str], pieces: tf.data.Dataset, make: Stage
) -> tf.data.Dataset:
    """Returns `make(pieces)`, in the same order, computed on tf.data services if there are any.

    `services` are addresses of the form `grpc://host:port`. Each service makes all of `pieces`,
    which should be cheap, and keeps its share. `make` must return one element for each input
    element.
    """
    if not services:
        return make(pieces)
    count = len(services)
    options = tf.data.Options()
    # This applies to the iterators in the service. With autotuning, deleting an iterator sometimes
    # blocks for as long as the iterator has existed; see `train/inputs/distribute.py`.
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
