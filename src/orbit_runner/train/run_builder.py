"""`build_run`: builds all parts of a run, also for several tasks or parameter servers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from orbit_runner.checkpoint.directory import CheckpointFolder, retention_of
from orbit_runner.checkpoint.latest_checkpoint import list_checkpoints
from orbit_runner.checkpoint.manager import Checkpoints, RunConditions
from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.schedule_length import follow_run
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import inline_yaml
from orbit_runner.determinism.numerics_record import KERAS_3, describe_numerics
from orbit_runner.distribute.parameter_servers import RunEnd
from orbit_runner.distribute.process_group import (
    Workers,
    describe_strategy,
    is_asynchronous,
    local_strategy,
)
from orbit_runner.errors import SettingError, format_list
from orbit_runner.run_directory.config import keep_interval
from orbit_runner.run_directory.evaluations import evaluated_data
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.state.train_state import TrainState
from orbit_runner.storage.staging import localize
from orbit_runner.tasks.adapter import TaskAdapter, adapt
from orbit_runner.tasks.assets import assets_of
from orbit_runner.tasks.keras.keras_3 import Keras3Model
from orbit_runner.train.build_state import build_state
from orbit_runner.train.callbacks.base import Callback, CallbackList, make_callbacks
from orbit_runner.train.callbacks.best_checkpoint import (
    BestCheckpoint,
    Comparison,
    require_metric,
)
from orbit_runner.train.callbacks.own_callbacks import EarlyStop, Pruning
from orbit_runner.train.engine import EngineBuilder
from orbit_runner.train.evaluator import Evaluator
from orbit_runner.train.loops.loop_pieces import LoopPieces
from orbit_runner.train.records import Records
from orbit_runner.train.run import Run
from orbit_runner.train.run_warnings import run_warnings
from orbit_runner.train.schedule import Plan, check_stop_step, make_plan
from orbit_runner.train.step_profiler import StepProfiler
from orbit_runner.train.stop_requests import SignalGuard, StopRequests, time_limit
from orbit_runner.train.trainer import LoopParts
from orbit_runner.utils.log import note, phase

if TYPE_CHECKING:
    from orbit_runner.state.initial_weights import AnyTask


def build_run(
    config: ExperimentConfig,
    task: AnyTask,
    strategy: tf.distribute.Strategy,
    model_dir: Path,
    *,
    trains: bool,
    evaluates: bool,
    follows: bool = False,
    asynchronous: bool,
    callbacks: Sequence[Callback] = (),
    save_summary: bool = True,
    records_in_graph: bool = True,
    stop_at_step: int | None = None,
    started: float | None = None,
    resume: str = "same",
) -> Run:
    """Builds a run. Its state is not restored or initialized yet.

    Args:
        config: The experiment.
        task: The task.
        strategy: The distribution strategy.
        model_dir: The run directory.
        trains: Whether the mode trains.
        evaluates: Whether the mode evaluates.
        follows: Whether the mode evaluates the checkpoints of a run in training.
        asynchronous: Whether training continues while a checkpoint is saved.
        callbacks: Called after those in the config.
        save_summary: Whether to write summaries and records.
        records_in_graph: Whether a loop may contain records, so that they do not end it.
        stop_at_step: A step before the last at which the run saves a checkpoint and ends.
        started: When the run started, by `time.monotonic()`; None: now.
        resume: `override`: the run may be resumed with another config.

    Returns:
        The run.

    Raises:
        RunnerError: The settings do not suit the task, the data or the devices.
    """
    config = keep_interval(config, model_dir)
    local_config = localize(config)
    if trains:
        _discard_old_assets(task, model_dir)
    adapter = adapt(task, config.for_task.task)
    plan = _build_plan(local_config, adapter, trains=trains)
    written_config = follow_run(config, plan.train_steps)
    config = localize(written_config)
    directory = RunDirectory(model_dir)
    workers = Workers(strategy)
    warnings = run_warnings(config, plan) if trains and workers.is_chief else []
    for text in warnings:
        note(f"warning: {text}")
    other_callbacks = CallbackList([*make_callbacks(config.callbacks), *callbacks])
    plan = dataclasses.replace(plan, averages_epochs=other_callbacks.averages_epochs)
    phase("building the model")
    if config.runtime.enable_xla and not config.uses_xla:
        note("runtime.enable_xla is ignored: Model Garden experiments use XLA only on GPUs")
    state = build_state(config, adapter, strategy)
    if trains and workers.is_chief and not state.model.trainable_variables:
        warnings.append("the model has no trainable weights, so the loss changes none")
        note(f"warning: {warnings[-1]}")
    is_over = time_limit(config.trainer.max_time, started)
    stops = _build_stop_requests(config, workers, model_dir, plan, stop_at_step, is_over)
    conditions = RunConditions(
        config=config_fingerprint(written_config),
        strategy=describe_strategy(strategy),
        numerics=describe_numerics(config.runtime, _packages(config, state)),
        is_required=resume != "override",
        # These are built later than the checkpoints and callbacks that need the conditions.
        callbacks=(lambda: all_callbacks.get_state()) if trains else dict,
        stopped=lambda: stops.reason,
    )
    checkpoints = Checkpoints(
        state,
        directory.checkpoints,
        strategy,
        conditions,
        max_to_keep=retention_of(config.trainer),
        # To save asynchronously, TensorFlow copies values to other variables, which all workers
        # would have to create together.
        asynchronous=asynchronous and workers.count == 1,
        writes=trains,
        is_official=config.is_official,
        trail=directory.fingerprints,
        workers=workers,
    )
    steps = _validation_steps(config, adapter) if evaluates else 0
    builder = EngineBuilder(config, adapter, strategy, state, str(model_dir))

    def read_step() -> int:
        return int(state.global_step.numpy())

    profiler = None
    if config.trainer.profile_steps and workers.is_chief:
        first, last = config.trainer.profile_steps
        profiler = StepProfiler(first, last, model_dir / "train", read_step)
    # Workers would have to reduce their metrics together in each record. A run that may return to a
    # checkpoint must detect divergence at the same step each time.
    cuts_at_records = workers.count > 1 or config.trainer.rolls_back
    loop = LoopParts(
        LoopPieces(config.runtime.grace_period, stops.next_piece_length),
        profiler,
        records_in_graph=records_in_graph
        and not cuts_at_records
        and not other_callbacks.needs_every_record,
    )
    with strategy.scope():
        trainer = builder.build_trainer(plan, loop) if trains else None
    with local_strategy(strategy).scope():
        evaluator = builder.build_evaluator(steps) if evaluates else None
    data = evaluated_data(model_dir, written_config) if evaluates and not trains else {}
    if data and workers.is_chief:
        lines = format_list([f"{path}: {inline_yaml(value)}" for path, value in data.items()])
        note(f"warning: the validation data are not those of the run:\n{lines}")
    records = Records(
        config,
        directory,
        state.global_step,
        plan,
        trainer,
        writes=save_summary and workers.is_chief,
        writes_curves=trains or follows,
        data=data,
        warnings=warnings,
    )
    has_pruning = trains and getattr(config.for_task.task, "pruning", None)
    own_callbacks: list[Callback | None] = [Pruning() if has_pruning else None]
    # Also if the run only trains: their states, which a later start needs, are in checkpoints.
    if trains or follows:
        own_callbacks.append(
            _build_best_checkpoint(
                config, model_dir, state, conditions, workers, evaluator, trains=trains
            )
        )
    if trains:
        own_callbacks.append(_build_early_stop(config, evaluator))
    all_callbacks = CallbackList([*filter(None, own_callbacks), *other_callbacks.callbacks])
    return Run(
        written_config=written_config,
        adapter=adapter,
        workers=workers,
        directory=directory,
        state=state,
        plan=plan,
        stops=stops,
        checkpoints=checkpoints,
        trainer=trainer,
        evaluator=evaluator,
        callbacks=all_callbacks,
        records=records,
    )


def _discard_old_assets(task: AnyTask, model_dir: Path) -> None:
    """Lets a new run compute its assets, if it has any, whatever an interrupted start has left."""
    assets = assets_of(task)
    checkpoints = CheckpointFolder(RunDirectory(model_dir).checkpoints)
    if assets is not None and not list_checkpoints(checkpoints):
        assets.discard()


def _build_plan(config: ExperimentConfig, adapter: TaskAdapter, *, trains: bool) -> Plan:
    trainer = config.trainer
    per_epoch = adapter.steps_per_epoch(getattr(config.for_task.task, "train_data", None))
    if not per_epoch and not trains:
        # Epochs cannot be converted to steps, and modes that only evaluate do not need it.
        trainer = trainer.replace(train_epochs=0.0, validation_epochs=0.0)
    plan = make_plan(trainer, per_epoch)
    if trains and plan.train_steps < 1:
        raise SettingError(
            "trainer.train_steps", "is 0; set it, or trainer.train_epochs", code="not-set"
        )
    return plan


def _build_stop_requests(
    config: ExperimentConfig,
    workers: Workers,
    model_dir: Path,
    plan: Plan,
    at_step: int | None,
    is_over: Callable[[], bool] | None,
) -> StopRequests:
    if at_step is not None:
        check_stop_step(at_step, plan.train_steps)
    # The servers of a remote cluster do not share the run directory, and continue after the run.
    served = is_asynchronous(workers.strategy) and not config.runtime.remote_cluster
    return StopRequests(
        workers,
        SignalGuard(on_terminate=config.trainer.preemption_on_demand_checkpoint),
        RunEnd(model_dir).leaving_members if served else list,
        note,
        at_step=at_step,
        is_over=is_over,
    )


def _packages(config: ExperimentConfig, state: TrainState) -> list[str]:
    """Returns the packages that compute the weights of this run, besides those of every run."""
    is_keras_3 = isinstance(state.model, Keras3Model)
    return [*config.data.packages(), *([KERAS_3] if is_keras_3 else [])]


def _validation_steps(config: ExperimentConfig, adapter: TaskAdapter) -> int:
    """Returns the number of batches of an evaluation, or -1 if it is not known."""
    asked = config.trainer.validation_steps
    data: Any = getattr(config.for_task.task, "validation_data", None)
    steps = adapter.validation_steps(data, asked)
    if steps:
        return steps
    if asked == 0:
        raise SettingError(
            "trainer.validation_steps", "got 0, allowed: -1 or at least 1", code="out-of-range"
        )
    raise SettingError(
        "task.validation_data.drop_remainder",
        "leaves nothing to evaluate: the dataset is smaller than one batch of "
        f"{data.global_batch_size}",
        code="empty-data",
    )


def _build_best_checkpoint(
    config: ExperimentConfig,
    model_dir: Path,
    state: TrainState,
    conditions: RunConditions,
    workers: Workers,
    evaluator: Evaluator | None,
    *,
    trains: bool,
) -> BestCheckpoint | None:
    """Returns the callback that saves the best checkpoint, or None if it is disabled.

    Raises SettingError if evaluations do not report its metric.
    """
    trainer = config.trainer
    metric = trainer.best_checkpoint_eval_metric
    subdir = trainer.best_checkpoint_export_subdir
    if not (subdir and metric):
        return None
    _check_metric(evaluator, metric, "trainer.best_checkpoint_eval_metric")
    return BestCheckpoint(
        Comparison(metric, trainer.best_checkpoint_metric_comp == "higher"),
        model_dir / subdir,
        state,
        conditions,
        trains=trains,
        workers=workers,
        keep=trainer.best_checkpoints_to_keep,
        note=note,
    )


def _build_early_stop(config: ExperimentConfig, evaluator: Evaluator | None) -> EarlyStop | None:
    """Returns the callback of early stopping; None without this setting.

    Raises SettingError if evaluations do not report its metric.
    """
    rule = config.trainer.early_stopping
    if rule is None:
        return None
    _check_metric(evaluator, rule.metric, "trainer.early_stopping.metric")
    return EarlyStop(rule, evaluates=evaluator is not None)


def _check_metric(evaluator: Evaluator | None, metric: str, setting: str) -> None:
    if evaluator is not None and not evaluator.gathers:
        require_metric(metric, evaluator.metric_names, setting)
