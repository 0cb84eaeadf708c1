"""Distributes a task's datasets to the replicas."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import orbit
import tensorflow as tf

from orbit_runner.config.schema.data import resolve_data_config, seed_of
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.partitioning import find_split, tpu_needed_problem
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.process_group import is_asynchronous
from orbit_runner.distribute.tpu_strategy import run_options, split_inputs
from orbit_runner.errors import DataError, SettingError
from orbit_runner.model_garden.task_adapter import ReplayedDataset, repeatable_draws_scope
from orbit_runner.tasks.adapter import TaskAdapter
from orbit_runner.tasks.base import section_of

# Returns the dataset of an input pipeline.
Build = Callable[[tf.distribute.InputContext], tf.data.Dataset]

if TYPE_CHECKING:
    from official.core import config_definitions as cfg

    from orbit_runner.config.schema.data import DataConfig
    from orbit_runner.utils.types import Tensors

    # A data section of a config: of this package, or of a task of Model Garden.
    DataSection: TypeAlias = DataConfig | cfg.DataConfig
    # A dataset of batches, distributed to the replicas or not.
    Dataset: TypeAlias = tf.data.Dataset | tf.distribute.DistributedDataset | ReplayedDataset


def distribute(
    strategy: tf.distribute.Strategy,
    task: TaskAdapter,
    data: DataSection,
    runtime: RuntimeConfig,
    start_step: int = 0,
    *,
    replays: bool = True,
    must_end: bool = False,
    takes_single_shards: bool = False,
) -> Dataset:
    """Returns a task's dataset, distributed to the replicas.

    It starts with the batch of `start_step`. If the task cannot start at a step, `replays`
    determines whether the batches of earlier steps are made again. The dataset is not distributed
    on a single CPU, nor if workers are asynchronous. If `takes_single_shards` is true, a batch of a
    device is one shard of a logical replica. Raises SettingError if the section does not fit the
    data, or if `must_end` is true and the dataset has no end.
    """
    replayed_steps = start_step if replays and not task.starts_at_step else 0
    logical = runtime.logical_replicas
    cut = None
    if takes_single_shards:
        cut = functools.partial(single_shards, logical=logical)
    elif logical and data.is_training and not task.starts_at_step:
        cut = functools.partial(sharded_inputs, logical=logical)
    pipeline = pipeline_builder(task, data, runtime, start_step, cut)

    # Orbit passes an argument of this name only.
    def build(input_context: tf.distribute.InputContext | None = None) -> tf.data.Dataset:
        dataset = pipeline(input_context)
        if must_end and int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
            raise SettingError(
                "trainer.validation_steps",
                "is -1, but the dataset is infinite; set it",
                code="not-set",
            )
        if replayed_steps > 1:
            dataset = dataset.skip((replayed_steps - 1) * _batches_per_step(input_context))
        return dataset

    if is_asynchronous(strategy) or _is_one_cpu(strategy):
        # With one replica on the host, there is nothing to distribute, and a distributed iterator
        # would cost a small network a quarter of its steps per second.
        dataset = build(tf.distribute.InputContext())
    else:
        dataset = orbit.utils.make_distributed_dataset(strategy, build)
    return ReplayedDataset(dataset, replayed_steps) if replayed_steps else dataset


def pipeline_builder(
    task: TaskAdapter,
    data: DataSection,
    runtime: RuntimeConfig,
    start_step: int | tf.Tensor,
    cut: Callable[[Build, tf.distribute.InputContext], tf.data.Dataset] | None = None,
    *,
    autotune: bool = True,
) -> Callable[[tf.distribute.InputContext | None], tf.data.Dataset]:
    """Returns the function that makes the dataset of one input pipeline.

    `start_step` may be an int64 scalar in the graph of a worker. `cut` selects what a pipeline
    makes of all batches; it is called with the function that makes them. If `autotune` is true, a
    pipeline that reads examples in their order is tuned.
    """

    def make(context: tf.distribute.InputContext | None) -> tf.data.Dataset:
        return task.build_inputs(data, context, start_step)

    asks = getattr(data, "ram_budget", None) or getattr(data, "autotune_algorithm", None)
    is_tuned = bool(asks or not task.starts_at_step)
    options = _options(runtime, autotune=autotune and is_tuned)
    if tf.is_tensor(start_step):
        # For a few batches, optimizing a pipeline takes longer than it saves.
        options.experimental_optimization.apply_default_optimizations = False

    def build(context: tf.distribute.InputContext | None) -> tf.data.Dataset:
        draws: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
        if not task.starts_at_step:  # It may have random draws of its own.
            draws = repeatable_draws_scope(seed_of(data, runtime), runtime.seed)
        with draws, data_error_scope(data):
            if cut is None:
                dataset = make(context)
            else:
                dataset = cut(make, context or tf.distribute.InputContext())
        return dataset.with_options(options)

    return build


@contextlib.contextmanager
def data_error_scope(data: DataSection) -> Iterator[None]:
    """Turns a DataError in a `with` block into a SettingError with the path of the setting."""
    try:
        yield
    except DataError as error:
        path = f"task.{section_of(data)}.{error.field}"
        raise SettingError(path, str(error), code=error.code) from error


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


def leading_size(inputs: Tensors) -> tf.Tensor:
    """Returns the number of rows of a nested batch, float32 scalar; 1 if nothing has rows."""
    for part in tf.nest.flatten(inputs):
        if isinstance(part, tf.RaggedTensor):
            return tf.cast(part.nrows(), tf.float32)
        if isinstance(part, tf.SparseTensor):
            return tf.cast(part.dense_shape[0], tf.float32)
        if part.shape.rank != 0:
            return tf.cast(tf.shape(part)[0], tf.float32)
    return tf.constant(1.0)


def sharded_inputs(
    build: Build, context: tf.distribute.InputContext, logical: int
) -> tf.data.Dataset:
    """Returns the batches of one pipeline's devices, each the neighboring shards of a device.

    `build` returns the dataset of an input context; it is that of `logical` replicas with one
    pipeline, so each element is a shard. Every pipeline makes all shards and keeps its own, because
    which examples are in a shard must not depend on the number of pipelines.
    """
    dataset = _keep_own(build(tf.distribute.InputContext(1, 0, logical)), context, logical)
    shards_per_replica = logical // context.num_replicas_in_sync
    if shards_per_replica == 1:
        return dataset
    return dataset.batch(shards_per_replica, drop_remainder=True).map(_join_shards)


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


def _join_shards(*batch: Tensors) -> Tensors:
    """Returns one batch of several shards: tensors [shards · rows, …]."""
    joined = tf.nest.map_structure(_join, batch)
    return joined[0] if len(joined) == 1 else joined


def _join(tensor: tf.Tensor) -> tf.Tensor:
    return tf.reshape(tensor, tf.concat([[-1], tf.shape(tensor)[2:]], axis=0))


# Pipelines that can only start at their beginning fill a buffer to shuffle, and make whole batches.
_MAX_SHUFFLE_BUFFER = 64
_MAX_BATCH_SIZE = 32


def own_batches(
    adapter: TaskAdapter, runtime: RuntimeConfig, section: DataSection, step: int = 0
) -> Iterator[Tensors]:
    """Yields the batches of a section for this process alone, each the whole batch of a step.

    `step` is the step of the first batch, for tasks that can start at any step. Others have smaller
    batches and shuffle fewer examples.
    """
    data = _limit_section(adapter, resolve_data_config(section, runtime))
    with data_error_scope(data):
        chunks = adapter.step_batches(data, 1)
    if chunks is None:
        build = pipeline_builder(adapter, data, runtime, step, autotune=False)
        yield from build(tf.distribute.InputContext())
        return
    # Without a pipeline, whose functions would have to be traced.
    steps = itertools.count(step) if chunks.steps is None else range(step, chunks.steps)
    for number in steps:
        yield chunks.batch_at(tf.constant(number, tf.int64))


def _limit_section(adapter: TaskAdapter, data: DataSection) -> DataSection:
    limits: dict[str, int] = {"cache": False}
    if not adapter.starts_at_step and data.is_training:
        limits |= {
            name: min(getattr(data, name, 0), most)
            for name, most in (
                ("shuffle_buffer_size", _MAX_SHUFFLE_BUFFER),
                ("global_batch_size", _MAX_BATCH_SIZE),
            )
        }
    return data.replace(**{n: value for n, value in limits.items() if hasattr(data, n)})


class Partition:
    """Splits a step as `train_input_partition_dims` or `eval_input_partition_dims` requests."""

    def __init__(
        self, config: ExperimentConfig, strategy: tf.distribute.Strategy, *, is_training: bool
    ) -> None:
        self._split = find_split(config, is_training)
        self._strategy = strategy
        self._runtime = config.runtime
        dims = {f"{self._split.section}_input_partition_dims": list(self._split.dims) or None}
        # The options of `strategy.run`; None if not on a TPU.
        self.options = run_options(config.runtime.replace(**dims))

    @tf.autograph.experimental.do_not_convert
    def split_inputs(self, inputs: Tensors) -> Tensors:
        """Returns a replica's inputs, nested tensors, with images split as the settings request.

        Must be called inside the step. Raises SettingError if the inputs cannot be split.
        """
        if self._split.parts == 1:
            return inputs
        if not self._runtime.traits.uses_tpu:
            problem = tpu_needed_problem(self._split, self._runtime)
            raise SettingError(problem.path, problem.message, code=problem.code)
        return split_inputs(self._strategy, inputs, self._split.dims, self._split.path)
