"""Distributes a task's data sets over replicas."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import orbit
import tensorflow as tf

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.parameter_server import is_asynchronous
from orbit_runner.errors import DataError, SettingError
from orbit_runner.model_garden.task_adapter.resume_inputs import Replayed
from orbit_runner.model_garden.task_adapter.seeded_inputs import repeatable_draws
from orbit_runner.tasks.adapter import TaskAdapter
from orbit_runner.train.inputs.worker_inputs import WorkerDatasets


def with_seed(data: Any, runtime: RuntimeConfig, recoveries: int = 0) -> Any:
    """Returns a section whose seed is set, and which services make its batches.

    Args:
        data: The section, of our class or of Model Garden's; what it does not have is not set.
        runtime: Gives the seed where the section has none, and services for all sections.
        recoveries: How often training went back after diverging; each time the order of examples
            is another one, for the same one would diverge again.
    """
    changes: dict[str, Any] = {}
    if hasattr(data, "seed"):
        changes["seed"] = _seed(data, runtime) + 1_000_003 * recoveries
    if runtime.tf_data_service is not None and hasattr(data, "tf_data_service_address"):
        changes["enable_tf_data_service"] = True
        changes["tf_data_service_address"] = runtime.tf_data_service
    return data.replace(**changes) if changes else data


def _seed(data: Any, runtime: RuntimeConfig) -> int:
    seed = getattr(data, "seed", None)
    return runtime.seed if seed is None else seed


def same_order_reason(data: Any) -> str:
    """Returns why examples come in the same order whatever the seed is; "" where they do not.

    Args:
        data: The section of training data; None where the task has none of its own.
    """
    if data is not None and not hasattr(data, "seed"):
        return "task.train_data has no seed"
    size = getattr(data, "shuffle_buffer_size", None)
    return f"task.train_data.shuffle_buffer_size is {size}" if size in (0, 1) else ""


def distribute(
    strategy: tf.distribute.Strategy,
    task: TaskAdapter,
    data: Any,
    runtime: RuntimeConfig,
    start_step: int | tf.Tensor = 0,
    *,
    replays: bool = True,
    must_end: bool = False,
) -> Any:
    """Builds a task's data set and shares it out to the replicas.

    Args:
        strategy: Where it goes.
        task: Whose `build_inputs` makes it.
        data: The section of the config, as the task takes it.
        runtime: Says how many threads pipelines have.
        start_step: The first step to make a batch for; under `parameter_server` a tensor, in the
            graph of what a worker does.
        replays: Whether tasks that cannot start anywhere make the batches before it once more.
        must_end: Whether all of it is going to be read.

    Returns:
        A data set, distributed unless the strategy is `off`.

    Raises:
        SettingError: The data set cannot be fed as the section says.
    """
    repeats = replays and not task.starts_at_step and not is_asynchronous(strategy)
    taken = int(start_step) if repeats else 0
    asked = getattr(data, "ram_budget", None) or getattr(data, "autotune_algorithm", None)

    def build(input_context: tf.distribute.InputContext | None = None) -> tf.data.Dataset:
        draws = _drawing(data, runtime, draws_for_itself=not task.starts_at_step)
        with draws, data_error_scope(data):
            dataset = task.build_inputs(data, input_context, start_step)
        if must_end and int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
            raise SettingError("trainer.validation_steps", "is -1, and the set has no end; set it")
        options = _options(runtime, autotune=bool(not task.starts_at_step or asked))
        if tf.is_tensor(start_step):
            # For a few batches, rewriting a pipeline costs more than it brings.
            options.experimental_optimization.apply_default_optimizations = False
        if taken > 1:
            dataset = dataset.skip((taken - 1) * _batches_a_step(input_context))
        return dataset.with_options(options)

    if is_asynchronous(strategy) and not task.starts_at_step:
        return WorkerDatasets(strategy, build)
    if is_asynchronous(strategy) or _is_one_cpu(strategy):
        # A distributed iterator costs a quarter of the steps per second of a small network, and
        # with one replica on the host there is nothing to distribute.
        dataset = build(tf.distribute.InputContext())
    else:
        dataset = orbit.utils.make_distributed_dataset(strategy, build)
    return Replayed(dataset, taken) if taken else dataset


@contextlib.contextmanager
def data_error_scope(data: Any) -> Iterator[None]:
    """Turns what is wrong with a data set into a message that names the setting.

    Args:
        data: The section of the config.

    Raises:
        SettingError: The data set cannot be fed as the section says.
    """
    try:
        yield
    except DataError as error:
        section = "train_data" if data.is_training else "validation_data"
        raise SettingError(f"task.{section}.{error.field}", str(error)) from error


def _drawing(data: Any, runtime: RuntimeConfig, *, draws_for_itself: bool) -> Any:
    """Returns what makes the draws of a pipeline repeatable, where it has any of its own."""
    if not draws_for_itself:
        return contextlib.nullcontext()
    return repeatable_draws(_seed(data, runtime), runtime.seed)


def _batches_a_step(context: tf.distribute.InputContext | None) -> int:
    """Returns how many batches of one pipeline a step takes: one for each of its replicas."""
    if context is None:
        return 1
    return max(1, context.num_replicas_in_sync // context.num_input_pipelines)


def _is_one_cpu(strategy: tf.distribute.Strategy) -> bool:
    if not isinstance(strategy, tf.distribute.OneDeviceStrategy):
        return False
    devices = strategy.extended.worker_devices
    return len(devices) == 1 and "CPU" in devices[0].upper()


def _options(runtime: RuntimeConfig, *, autotune: bool) -> tf.data.Options:
    options = tf.data.Options()
    # The first batches are made while the step is traced (not under `mirrored`, which waits).
    options.experimental_warm_start = True
    if not autotune:
        # When an iterator goes, TensorFlow 2.20 now and then loses the wake-up of its autotuning
        # thread, and holds the GIL for as long as the iterator has lived, up to a minute. Pipelines
        # that sample by index are as fast without it.
        options.autotune.enabled = False
    if runtime.dataset_num_private_threads:
        options.threading.private_threadpool_size = runtime.dataset_num_private_threads
    return options


def leading_size(inputs: Any) -> tf.Tensor:
    """Returns the number of rows in a nested batch, float32 scalar; 1 where nothing has rows."""
    for part in tf.nest.flatten(inputs):
        if isinstance(part, tf.RaggedTensor):
            return tf.cast(part.nrows(), tf.float32)
        if isinstance(part, tf.SparseTensor):
            return tf.cast(part.dense_shape[0], tf.float32)
        if part.shape.rank != 0:
            return tf.cast(tf.shape(part)[0], tf.float32)
    return tf.constant(1.0)
