"""Builds what a run would build, in one process and without a run directory, and inspects it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from orbit_runner.config.schedule_length import follow_run
from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.data.tables.summary import TableSummary
from orbit_runner.errors import DataError, RunnerError, SettingError, first_line
from orbit_runner.inspection.measure import (
    Measurement,
    StepGraph,
    StepSizes,
    evaluation_seconds,
    scale_of,
    step_sizes,
    trace_model,
    trace_step,
    training_speed,
)
from orbit_runner.inspection.scale import Scale, ScaleRequest
from orbit_runner.inspection.schedule import Schedule, make_schedule
from orbit_runner.serving.loader import make_task, single_process_runtime
from orbit_runner.step.batches import batch_summary, pictures, sentences
from orbit_runner.step.layers import LayerCalls, layer_rows
from orbit_runner.step.results import LayerRow, TensorSummary
from orbit_runner.storage.staging import localize
from orbit_runner.tasks.adapter import TaskAdapter, adapt
from orbit_runner.train.build_state import build_state
from orbit_runner.train.engine import EngineBuilder
from orbit_runner.train.error_messages import TRAIN_DATA, VALIDATION_DATA, error_message_scope
from orbit_runner.train.inputs.distribute import distribute
from orbit_runner.train.run_warnings import run_warnings
from orbit_runner.train.schedule import Plan, make_plan
from orbit_runner.utils.log import phase

if TYPE_CHECKING:
    from orbit_runner.state.initial_weights import AnyTask
    from orbit_runner.train.trainer import Trainer
    from orbit_runner.utils.types import JsonObject, Tensors


_SECTIONS = {"training": TRAIN_DATA, "validation": VALIDATION_DATA}
# Returns the scope in which errors about the use of a data section name their setting.
ErrorsScope = Callable[[str], contextlib.AbstractContextManager[None]]


@dataclasses.dataclass(frozen=True)
class Batch:
    """A batch of a section, or the reason why there is none.

    Attributes:
        tensors: The tensors.
        sentences: The first rows of token ids as text, with the name of their tensor.
        images: Pictures, [n, height, width, channels]; None if there are none.
        labels: The labels of the pictures.
        problem: Why there is no batch.
    """

    tensors: Sequence[TensorSummary] = ()
    sentences: Sequence[tuple[str, str]] = ()
    images: np.ndarray | None = None
    labels: Sequence[str] = ()
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class Inspection:
    """The model, the data, the memory and the schedule of a run.

    Attributes:
        name: The name of the experiment.
        replicas: The number of replicas; batches, memory and measured times are those of one.
        layers: The layers of the model.
        step_flops: Floating-point operations of a step on all replicas; None if unknown.
        batches: The batches by name: `training` and `validation`.
        memory: The sizes of what a step reads and changes.
        schedule: The schedule, or why it is unknown.
        measured: The measured times of a few steps; None if they were not run.
        every_layer: Whether each layer has a row of its own.
        table: A summary of the table; None if the data is not a table.
        loss_by_class: The weight of each class in the loss; empty if all are 1.
        warnings: Why results of the run may not be what they seem.
        scale: What a cluster would compute, read and send; None if it was not asked for.
    """

    name: str
    replicas: int
    layers: Sequence[LayerRow]
    step_flops: int | None
    batches: dict[str, Batch]
    memory: StepSizes
    schedule: Schedule | str
    measured: Measurement | None
    every_layer: bool = False
    table: TableSummary | None = None
    loss_by_class: Mapping[str, float] = dataclasses.field(default_factory=dict)
    warnings: Sequence[str] = ()
    scale: Scale | None = None

    def as_dict(self) -> JsonObject:
        """Returns the values for JSON, without pictures."""
        values = dataclasses.asdict(
            dataclasses.replace(
                self,
                batches={n: dataclasses.replace(b, images=None) for n, b in self.batches.items()},
            )
        )
        for batch in values["batches"].values():
            del batch["images"]
        del values["every_layer"]
        return values


def inspect_experiment(
    config: ExperimentConfig,
    *,
    measure: bool = False,
    every_layer: bool = False,
    problems: Sequence[tuple[str, str]] = (),
    run: Path | None = None,
    scale: ScaleRequest | None = None,
) -> Inspection:
    """Returns what a run of a config would train.

    Args:
        config: The experiment.
        measure: Whether to run a few steps, and measure their speed.
        every_layer: Whether each layer has a row of its own.
        problems: (path, message) of the data that are known to be missing.
        run: The directory of a run that is inspected, whose assets the model is built with.
        scale: The cluster to rehearse; the settings of `config` must be those of the cluster.

    Raises:
        RunnerError: The experiment cannot run, or the model cannot be built without its data.
    """
    start = time.perf_counter()
    replica = _Replica(config, run, problems)
    built = time.perf_counter() - start
    replica_config = replica.config
    task = replica.task
    state = replica.state
    plan = replica.plan
    schedule: Schedule | str = (
        plan
        if isinstance(plan, str)
        else make_schedule(config, replica.adapter, plan, state.optimizer)
    )
    phase("reading a batch of each section")
    raw = {name: replica.read_batch(section) for name, section in _SECTIONS.items()}
    batch = raw["training"]
    trainer, step = replica.trace(batch)
    if step is None:
        calls = LayerCalls(state.model)
        trace_model(state.model, calls)
    else:
        calls = step.calls
    measured = None
    if measure and step is not None and not isinstance(schedule, str):
        measured = _measure(replica, trainer, schedule, built)
    data = localize(config).data
    table = data.summary()
    memory = step_sizes(state, batch if step else None, step)
    figures = None
    if scale is not None:
        figures = scale_of(scale, config, replica.adapter, state, plan, memory.gradients)
    return Inspection(
        name=config.name or "",
        replicas=replica.count,
        layers=layer_rows(state.model, calls, every=every_layer),
        step_flops=step.flops * replica.count if step and step.flops is not None else None,
        batches={name: _describe_batch(task, raw_batch) for name, raw_batch in raw.items()},
        memory=memory,
        schedule=schedule,
        measured=measured,
        every_layer=every_layer,
        table=table,
        loss_by_class=_loss_by_class(task),
        warnings=run_warnings(replica_config, None if isinstance(plan, str) else plan),
        scale=figures,
    )


class _Replica:
    """What a run would build for one of its replicas.

    Attributes:
        count: The number of replicas of the run.
        config: The config of a run with this replica only.
        plan: The plan, or why it is unknown.
        errors_scope: See `ErrorsScope`. Messages name the settings of the run.
    """

    def __init__(
        self, config: ExperimentConfig, run: Path | None, problems: Sequence[tuple[str, str]]
    ) -> None:
        self.count = config.runtime.num_replicas() or 1
        replica_config = single_replica_config(localize(config), self.count)
        self.task = make_task(replica_config, run, replica_config.runtime.num_gpus)
        strategy = tf.distribute.get_strategy()
        self.adapter = adapt(self.task)
        self.plan = _plan(config, self.adapter, problems)
        train_steps = num_examples = 0
        data = getattr(replica_config.for_task.task, "train_data", None)
        if not isinstance(self.plan, str):
            train_steps = self.plan.train_steps
            num_examples = 0 if data is None else self.adapter.num_examples(data) or 0
        self.config = follow_run(replica_config, train_steps, num_examples)
        phase("building the model")
        self.state = build_state(self.config, self.adapter, strategy)
        self.errors_scope: ErrorsScope = functools.partial(error_message_scope, config)
        self.builder = EngineBuilder(self.config, self.adapter, strategy, self.state, "")

    def read_batch(self, section: str) -> Tensors | str:
        """Returns the first batch of a section, or why there is none."""
        data = getattr(self.config.for_task.task, section, None)
        if self.adapter.subtasks:
            return "several tasks are trained together"
        if data is None:
            return "has no such section"
        runtime = self.config.runtime
        try:
            strategy = tf.distribute.get_strategy()
            with self.errors_scope(section):
                dataset = distribute(
                    strategy, self.adapter, resolve_data_config(data, runtime), runtime
                )
                return next(iter(dataset))
        except StopIteration:
            return "the dataset has no batches"
        except RunnerError as error:
            return str(error)

    def trace(self, batch: Tensors | str) -> tuple[Any, StepGraph | None]:
        """Returns a trainer and a traced step of it; None for both without a batch or a plan."""
        phase("tracing a training step")
        if isinstance(batch, str) or isinstance(self.plan, str):
            return None, None
        with self.errors_scope(TRAIN_DATA):
            trainer = self.builder.build_trainer(self.plan)
            pieces = self.config.trainer.gradient_accumulation_steps
            shards = self.config.runtime.logical_replicas or 1
            return trainer, trace_step(trainer, self.task, self.state.model, batch, pieces, shards)


def _loss_by_class(task: object) -> dict[str, float]:
    """Returns the weight of each class in the loss; empty if all are 1 or the data are missing."""
    try:
        return dict(getattr(task, "loss_by_class", {}))
    except DataError:
        return {}


def single_replica_config(config: ExperimentConfig, replicas: int) -> ExperimentConfig:
    """Returns the config of a single process with the batches of one of its replicas."""
    config = config.without("service", "output")
    # -1: a GPU if this machine has one.
    runtime = single_process_runtime(config.runtime, -1 if config.runtime.num_gpus else 0).replace(
        deterministic=config.runtime.deterministic,
        logical_replicas=config.runtime.logical_replicas // replicas,  # The shards of one device.
    )
    sections = {}
    for section in _SECTIONS.values():
        data: Any = getattr(config.task, section, None)
        sizes = {
            name: max(1, getattr(data, name) // replicas)
            for name in ("global_batch_size", "batch_tokens", "batch_rows_multiple")
            if getattr(data, name, 0)
        }
        if replicas > 1 and sizes:
            sections[section] = data.replace(**sizes)
    return config.replace(runtime=runtime, task=config.task.replace(**sections))


def _plan(
    config: ExperimentConfig, adapter: TaskAdapter, problems: Sequence[tuple[str, str]]
) -> Plan | str:
    """Returns the plan, or why it is unknown."""
    data = getattr(config.for_task.task, "train_data", None)
    try:
        per_epoch = adapter.steps_per_epoch(data)
    except (DataError, SettingError) as error:
        if not problems:
            raise
        return first_line(error)
    return make_plan(config.trainer, per_epoch)


def _describe_batch(task: AnyTask, batch: Tensors | str) -> Batch:
    if isinstance(batch, str):
        return Batch(problem=batch)
    images, labels = pictures(batch) or (None, [])
    return Batch(batch_summary(batch), sentences(task, batch), images, labels)


def _measure(replica: _Replica, trainer: Trainer, schedule: Schedule, built: float) -> Measurement:
    phase("measuring the speed")
    with replica.errors_scope(TRAIN_DATA):
        first, steps, seconds = training_speed(trainer)
    batches = schedule.validation_steps or -1
    with replica.errors_scope(VALIDATION_DATA):
        evaluation = evaluation_seconds(replica.builder.build_evaluator(batches), batches)
    training = first + schedule.train_steps * seconds / steps
    return Measurement(
        build_seconds=built,
        trace_seconds=first,
        steps=steps,
        steps_per_second=steps / seconds,
        evaluation_seconds=evaluation,
        run_seconds=training + schedule.evaluations * (evaluation or 0.0),
    )
