"""`Batches`: what a loop gets its batches from, data in memory or an input pipeline."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.data.chunks import Chunks
from orbit_runner.data.options import PipelineOptions
from orbit_runner.distribute.devices import local_devices
from orbit_runner.errors import SettingError
from orbit_runner.tasks.adapter import TaskAdapter
from orbit_runner.tasks.base import section_of
from orbit_runner.train.inputs.distribute import data_error_scope
from orbit_runner.train.loops.graph_loops import chunked_loop, exhausting_loop, step_loop
from orbit_runner.train.loops.loop_pieces import Loop
from orbit_runner.train.loops.recorder import Recorder
from orbit_runner.utils.autograph import convert

if TYPE_CHECKING:
    from orbit_runner.train.gradients import StepFn
    from orbit_runner.train.inputs.distribute import DataSection, Dataset
    from orbit_runner.train.loops.loop_pieces import BatchSource
    from orbit_runner.utils.types import Tensors


# Runs a step on all replicas. The arguments are a distributed batch, or several of them and the row
# of the batch to use.
RunStep = Callable[..., Any]


def take_next(run_step: RunStep, iterator: Any) -> None:
    """Runs a step on the next batch of an iterator."""
    run_step(next(iterator))


class Trains(Protocol):
    """A trainer, as far as its loop needs it."""

    task: Any  # the owner of the code of the steps
    step_fn: StepFn
    metrics: Any
    recorder: Recorder | None
    compiles: bool

    def run_step(self, *inputs: Tensors) -> None:
        """Runs one step on all replicas, see `RunStep`."""

    def inspect_graph(self) -> None:
        """Must be called at the end of a step, in its graph."""


class Batches:
    """The batches of a loop. Which kind is used is decided when they are first needed."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        # Returns the distributed dataset that starts at a given step, or one for each task.
        make_dataset: Callable[[int], Dataset | Mapping[str, Dataset]],
        # Returns the batches by their steps, or None if a dataset is needed.
        make_chunks: Callable[[], Chunks | None] = lambda: None,
        *,
        take: Callable[[RunStep, Any], None] = take_next,  # runs a step on the next batch
        # Whether there are as many batches as requested. The graph then need not check for the end,
        # and the batches keep their static shapes.
        counted: bool = True,
    ) -> None:
        self._strategy = strategy
        self._make_dataset = make_dataset
        self._make_chunks = make_chunks
        self.take = take
        self._counted = counted
        self._dataset: Any = None  # () if the batches are in memory
        self._chunks: Chunks | None = None

    @property
    def are_made_in_loop(self) -> bool:
        """Whether the loop makes the batches of any step itself. False before `start` is called."""
        return self._chunks is not None

    def start(self, step: int) -> BatchSource:
        """Returns the first argument of the loop: iterators that begin at the start.

        The start of the dataset is the batch of `step` if this call makes it.
        """
        if self._dataset is None:
            self._chunks = self._make_chunks()
            self._dataset = self._make_dataset(step) if self._chunks is None else ()
        return tf.nest.map_structure(iter, self._dataset)

    def discard(self) -> None:
        """Lets the next call of `start` make the batches again."""
        self._dataset = None

    def first(self, step: int) -> Tensors | None:
        """Returns the distributed batch of a step, from a dataset of its own, or None."""
        return next(iter(self._make_dataset(step)), None)

    def loop(
        self,
        run_step: RunStep,
        owner: object,  # whose code `run_step` calls
        *,
        recorder: Recorder | None = None,
        jit_compile: bool = False,
    ) -> Loop:
        """Returns the graph function that runs a step on each of a number of batches."""
        run = convert(run_step, owner)
        if self._chunks is not None:
            return chunked_loop(
                self._chunks, self._strategy, run, recorder=recorder, jit_compile=jit_compile
            )
        if not self._counted:
            return exhausting_loop(run)
        if jit_compile:
            run_step = tf.function(run, autograph=False, jit_compile=True)
        return step_loop(convert(functools.partial(self.take, run_step), owner), recorder)

    def training_loop(self, trainer: Trains) -> Loop:
        """Returns the loop of a trainer."""
        return self.loop(
            trainer.run_step,
            trainer.task,
            recorder=trainer.recorder,
            jit_compile=trainer.compiles,
        )


_MAX_BYTES = 2**30  # if `on_device` is not set


def resident_batches(
    config: ExperimentConfig, strategy: tf.distribute.Strategy, task: TaskAdapter, data: DataSection
) -> Chunks | None:
    """Returns the batches of a data section by step, or None if a pipeline has to make them.

    The seed of the section must be set. Raises SettingError if its `on_device` is true, but steps
    cannot make the batches.
    """
    requested = getattr(data, "on_device", False)
    if requested is False:
        return None
    replicas = strategy.num_replicas_in_sync
    if data.global_batch_size % replicas:
        return None  # The pipeline reports that error.
    obstacle = _obstacle(config, strategy, data)
    chunks = None
    if not obstacle:
        with data_error_scope(data):
            chunks = task.step_batches(data, replicas)
    if requested and chunks is None:
        obstacle = obstacle or "this dataset is read on demand, or preprocessed for each example"
        reason = f"got true, but {obstacle}\nomit it to use an input pipeline where one is needed"
        raise SettingError(f"task.{section_of(data)}.on_device", reason, code="not-supported")
    if not requested and chunks is not None and chunks.nbytes > _MAX_BYTES:
        return None
    return chunks


def _obstacle(config: ExperimentConfig, strategy: tf.distribute.Strategy, data: Any) -> str:
    """Returns why steps cannot make the batches, or "" if they can."""
    runtime = config.runtime
    if runtime.run_eagerly:
        return "the loop over steps does not run as a graph"
    if runtime.traits.is_asynchronous or runtime.traits.uses_tpu:
        return f"runtime.distribution_strategy is {runtime.distribution_strategy}"
    if PipelineOptions.from_config(data).services:
        return "tf.data services produce the batches"
    if any("CPU" not in name.upper() for name in local_devices(strategy)):
        return "steps on a GPU get their batches from a pipeline"
    return ""
