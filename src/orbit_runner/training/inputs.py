"""Distributes a task's data sets over replicas."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import orbit
import tensorflow as tf

from orbit_runner.config.data import DataConfig
from orbit_runner.config.runtime import RuntimeConfig
from orbit_runner.errors import DataError, SettingError
from orbit_runner.runtime.coordinator import is_served
from orbit_runner.training.worker_inputs import WorkerDatasets


def with_seed(data: DataConfig, runtime: RuntimeConfig, recoveries: int = 0) -> DataConfig:
    """Returns a section whose seed is set, and which services make its batches.

    Args:
        data: The section.
        runtime: Gives the seed where the section has none, and services for all sections.
        recoveries: How often training went back after diverging; each time the order of examples
            is another one, for the same one would diverge again.
    """
    seed = runtime.seed if data.seed is None else data.seed
    data = data.replace(seed=seed + 1_000_003 * recoveries)
    if runtime.tf_data_service is None:
        return data
    return data.replace(
        enable_tf_data_service=True, tf_data_service_address=runtime.tf_data_service
    )


def distribute(
    strategy: tf.distribute.Strategy,
    task: Any,
    data: DataConfig,
    runtime: RuntimeConfig,
    start_step: int | tf.Tensor = 0,
) -> Any:
    """Builds a task's data set and shares it out to the replicas.

    Args:
        strategy: Where it goes.
        task: Whose `build_inputs` makes it.
        data: The section of the config.
        runtime: Says how many threads pipelines have.
        start_step: The first step to make a batch for, in tasks that can start anywhere; under
            `parameter_server` a tensor, in the graph of what a worker does.

    Returns:
        A data set, distributed unless the strategy is `off`.

    Raises:
        SettingError: The data set cannot be fed as the section says.
    """
    takes_start = starts_anywhere(task)
    extra = {"start_step": start_step} if takes_start else {}
    asked = data.ram_budget is not None or data.autotune_algorithm is not None

    def build(input_context: tf.distribute.InputContext | None = None) -> tf.data.Dataset:
        try:
            dataset = task.build_inputs(data, input_context, **extra)
        except DataError as error:
            section = "train_data" if data.is_training else "validation_data"
            raise SettingError(f"task.{section}.{error.field}", str(error)) from error
        options = _options(runtime, autotune=not takes_start or asked)
        if tf.is_tensor(start_step):
            # For a few batches, rewriting a pipeline costs more than it brings.
            options.experimental_optimization.apply_default_optimizations = False
        return dataset.with_options(options)

    if is_served(strategy) and not takes_start:
        return WorkerDatasets(strategy, build)
    if is_served(strategy) or _is_one_cpu(strategy):
        # A distributed iterator costs a quarter of the steps per second of a small network, and
        # with one replica on the host there is nothing to distribute.
        return build(tf.distribute.InputContext())
    return orbit.utils.make_distributed_dataset(strategy, build)


def batch_at_step(task: Any, data: DataConfig) -> Callable[[tf.Tensor], Any] | None:
    """Returns what gives a task's batches by the numbers of their steps; None where it cannot.

    Args:
        task: The task.
        data: The section of the config.
    """
    made = getattr(task, "batch_at", None)
    return None if made is None else made(data)


def starts_anywhere(task: Any) -> bool:
    """Returns whether a task's input pipeline can start at any step: Model Garden's cannot."""
    return "start_step" in inspect.signature(task.build_inputs).parameters


def _is_one_cpu(strategy: tf.distribute.Strategy) -> bool:
    if not isinstance(strategy, tf.distribute.OneDeviceStrategy):
        return False
    devices = strategy.extended.worker_devices
    return len(devices) == 1 and "CPU" in devices[0].upper()


def _options(runtime: RuntimeConfig, *, autotune: bool) -> tf.data.Options:
    options = tf.data.Options()
    if not autotune:
        # When an iterator goes, TensorFlow 2.20 now and then loses the wake-up of its autotuning
        # thread, and holds the GIL for as long as the iterator has lived, up to a minute. Pipelines
        # that sample by index are as fast without it.
        options.autotune.enabled = False
    if runtime.dataset_num_private_threads:
        options.threading.private_threadpool_size = runtime.dataset_num_private_threads
    return options


def leading_size(inputs: Any) -> tf.Tensor:
    """Returns the number of rows in a nested batch, float32 scalar."""
    return tf.cast(tf.shape(tf.nest.flatten(inputs)[0])[0], tf.float32)
