"""Settings of tf.data that change speed and memory, not values."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from orbit_runner.config.schema.data import DataConfig, service_addresses


@dataclasses.dataclass(frozen=True)
class PipelineOptions:
    """How tf.data runs a pipeline; None leaves a choice to it.

    Attributes:
        prefetch: Batches made ahead, at least; 0 for none.
        private_threads: Threads of the pipeline's own.
        deterministic: Whether batches keep their order.
        ram_budget_gb: Memory for buffers, in GiB.
        autotune_algorithm: A name in `tf.data.experimental.AutotuneAlgorithm`.
        services: Addresses of tf.data services that make the batches; none to make them here.
    """

    prefetch: int | None = None
    private_threads: int | None = None
    deterministic: bool | None = None
    ram_budget_gb: int | None = None
    autotune_algorithm: str | None = None
    services: tuple[str, ...] = ()

    @classmethod
    def of(cls, params: DataConfig) -> PipelineOptions:
        """Returns what a section of the config says.

        Args:
            params: The section.
        """
        return cls(
            prefetch=params.prefetch_buffer_size,
            deterministic=params.deterministic,
            ram_budget_gb=params.ram_budget,
            autotune_algorithm=params.autotune_algorithm,
            services=service_addresses(params),
        )

    def ahead(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        """Makes batches before they are asked for.

        Args:
            batches: The batches.
        """
        count = tf.data.AUTOTUNE if self.prefetch is None else self.prefetch
        return batches.prefetch(count) if count else batches

    def tf_options(self) -> tf.data.Options:
        """Returns the settings as tf.data takes them, with autosharding off."""
        options = tf.data.Options()
        # Every pipeline computes its own slice, so that nothing is left to share out.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        if self.private_threads is not None:
            options.threading.private_threadpool_size = self.private_threads
        if self.deterministic is not None:
            options.deterministic = self.deterministic
        if self.ram_budget_gb is not None:
            options.autotune.ram_budget = self.ram_budget_gb * 2**30
        if self.autotune_algorithm is not None:
            algorithms = tf.data.experimental.AutotuneAlgorithm
            options.autotune.autotune_algorithm = algorithms[self.autotune_algorithm]
        return options
