"""tf.data options and services, which affect speed and memory, but not values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from orbit_runner.config.schema.data import DataConfig, service_addresses

Stage = Callable[[tf.data.Dataset], tf.data.Dataset]
ENDLESS = 2**62  # the length of datasets without an end


@dataclasses.dataclass(frozen=True)
class PipelineOptions:
    """Options of a tf.data pipeline. None leaves the choice to tf.data."""

    prefetch: int | None = None  # Minimum number of batches to prefetch; 0 for none.
    deterministic: bool | None = None  # Whether batches keep their order.
    ram_budget_gb: int | None = None  # Memory for buffers, in GiB.
    autotune_algorithm: str | None = None  # Of `tf.data.experimental.AutotuneAlgorithm`.
    # Addresses of the tf.data services that make the batches. If empty, this process makes them.
    services: tuple[str, ...] = ()

    @classmethod
    def from_config(cls, params: DataConfig) -> PipelineOptions:
        """Returns the options in a data section of a config."""
        return cls(
            prefetch=params.prefetch_buffer_size,
            deterministic=params.deterministic,
            ram_budget_gb=params.ram_budget,
            autotune_algorithm=params.autotune_algorithm,
            services=service_addresses(params),
        )

    def add_prefetch(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        """Returns the dataset with prefetching, unless it is turned off."""
        count = tf.data.AUTOTUNE if self.prefetch is None else self.prefetch
        return batches.prefetch(count) if count else batches

    def apply_to(
        self, batches: tf.data.Dataset, count: int = tf.data.INFINITE_CARDINALITY
    ) -> tf.data.Dataset:
        """Returns a dataset of `count` batches, by default without an end, with these options."""
        # With a finite dataset, a distributed iterator would check in each step whether the data of
        # any replica has ended.
        counted = batches.apply(tf.data.experimental.assert_cardinality(count))
        options = tf.data.Options()
        # Every pipeline computes its own slice, so there is nothing to shard.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        if self.deterministic is not None:
            options.deterministic = self.deterministic
        if self.ram_budget_gb is not None:
            options.autotune.ram_budget = self.ram_budget_gb * 2**30
        if self.autotune_algorithm is not None:
            algorithms = tf.data.experimental.AutotuneAlgorithm
            options.autotune.autotune_algorithm = algorithms[self.autotune_algorithm]
        return counted.with_options(options)


def apply_on_services(
    services: Sequence[str], pieces: tf.data.Dataset, make: Stage
) -> tf.data.Dataset:
    """Returns `make(pieces)`, in the same order, computed on tf.data services if there are any.

    `services` are addresses of the form `grpc://host:port`. Each service makes all of `pieces`,
    which should be cheap, and keeps its share. `make` must return one element for each input
    element.

    A dispatcher with several workers would return the batches of each worker as they arrive. Here,
    each service has one worker and makes every n-th element of the pipeline, and the elements are
    taken in turn. So the order stays a function of (seed, step), and a resumed run gets the batches
    that it would have gotten without the interruption.
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
