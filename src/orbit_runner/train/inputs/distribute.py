"""Distributes a task's datasets to the replicas."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import orbit
import tensorflow as tf

from orbit_runner.config.schema.data import seed_of
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.parameter_server import is_asynchronous
from orbit_runner.errors import DataError, SettingError
from orbit_runner.model_garden.task_adapter.resume_inputs import ReplayedDataset
from orbit_runner.model_garden.task_adapter.seeded_inputs import repeatable_draws_scope
from orbit_runner.tasks.adapter import TaskAdapter
from orbit_runner.train.inputs.worker_inputs import WorkerDatasets
from orbit_runner.train.logical_replicas.inputs import sharded_inputs, single_shards


def distribute(
    strategy: tf.distribute.Strategy,
    task: TaskAdapter,
    data: Any,
    runtime: RuntimeConfig,
    start_step: int | tf.Tensor = 0,
    *,
    replays: bool = True,
    must_end: bool = False,
    takes_single_shards: bool = False,
) -> Any:
    """Returns a task's dataset, distributed to the replicas.

    It starts with the batch of `start_step`, which under `parameter_server` may be an int64 scalar
    in the graph of a worker. If the task cannot start at a step, `replays` determines whether the
    batches of earlier steps are made again. The dataset is not distributed under `parameter_server`
    if the task can start at a step, nor on a single CPU. If `takes_single_shards` is true, a batch
    of a device is one shard of a logical replica. Raises SettingError if the section does not fit
    the data, or if `must_end` is true and the dataset has no end.
    """
    repeats = replays and not task.starts_at_step and not is_asynchronous(strategy)
    replayed_steps = int(start_step) if repeats else 0
    logical = runtime.logical_replicas
    cut = None
    if takes_single_shards:
        cut = single_shards
    elif logical and data.is_training and not task.starts_at_step:
        cut = sharded_inputs
    requested = getattr(data, "ram_budget", None) or getattr(data, "autotune_algorithm", None)

    def build(input_context: tf.distribute.InputContext | None = None) -> tf.data.Dataset:
        draws = _draws_scope(data, runtime, draws_statefully=not task.starts_at_step)
        with draws, data_error_scope(data):
            if cut is None:
                dataset = task.build_inputs(data, input_context, start_step)
            else:
                dataset = cut(
                    lambda context: task.build_inputs(data, context, start_step),
                    input_context or tf.distribute.InputContext(),
                    logical,
                )
        if must_end and int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
            raise SettingError(
                "trainer.validation_steps", "is -1, but the dataset is infinite; set it"
            )
        options = _options(runtime, autotune=bool(not task.starts_at_step or requested))
        if tf.is_tensor(start_step):
            # For a few batches, optimizing a pipeline takes longer than it saves.
            options.experimental_optimization.apply_default_optimizations = False
        if replayed_steps > 1:
            dataset = dataset.skip((replayed_steps - 1) * _batches_per_step(input_context))
        return dataset.with_options(options)

    if is_asynchronous(strategy) and not task.starts_at_step:
        return WorkerDatasets(strategy, build)
    if is_asynchronous(strategy) or _is_one_cpu(strategy):
        # With one replica on the host, there is nothing to distribute, and a distributed iterator
        # would cost a small network a quarter of its steps per second.
        dataset = build(tf.distribute.InputContext())
    else:
        dataset = orbit.utils.make_distributed_dataset(strategy, build)
    return ReplayedDataset(dataset, replayed_steps) if replayed_steps else dataset


@contextlib.contextmanager
def data_error_scope(data: Any) -> Iterator[None]:
    """Turns a DataError in a `with` block into a SettingError with the path of the setting."""
    try:
        yield
    except DataError as error:
        section = "train_data" if data.is_training else "validation_data"
        raise SettingError(f"task.{section}.{error.field}", str(error)) from error


def _draws_scope(data: Any, runtime: RuntimeConfig, *, draws_statefully: bool) -> Any:
    """Returns a scope that makes a pipeline's own random draws repeatable, if it has any."""
    if not draws_statefully:
        return contextlib.nullcontext()
    return repeatable_draws_scope(seed_of(data, runtime), runtime.seed)


def _batches_per_step(context: tf.distribute.InputContext | None) -> int:
    """Returns the number of batches that a step takes from a pipeline: one for each replica."""
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
    # The first batches are made while the step is traced, except under `mirrored`, which waits.
    options.experimental_warm_start = True
    if not autotune:
        # When an iterator is deleted, TensorFlow 2.20 sometimes misses the wake-up of its
        # autotuning thread, and holds the GIL for as long as the iterator has existed, up to a
        # minute. Pipelines that read examples by index are as fast without autotuning.
        options.autotune.enabled = False
    if runtime.dataset_num_private_threads:
        options.threading.private_threadpool_size = runtime.dataset_num_private_threads
    return options


def leading_size(inputs: Any) -> tf.Tensor:
    """Returns the number of rows of a nested batch, float32 scalar; 1 if nothing has rows."""
    for part in tf.nest.flatten(inputs):
        if isinstance(part, tf.RaggedTensor):
            return tf.cast(part.nrows(), tf.float32)
        if isinstance(part, tf.SparseTensor):
            return tf.cast(part.dense_shape[0], tf.float32)
        if part.shape.rank != 0:
            return tf.cast(tf.shape(part)[0], tf.float32)
    return tf.constant(1.0)
