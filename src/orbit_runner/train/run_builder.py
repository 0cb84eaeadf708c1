"""`build_run`: builds all parts of a run, also for several tasks or parameter servers."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of, foreign_checkpoints_reason
from orbit_runner.config.schedule_length import follow_run, weight_decay, with_interval
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.schedules import AUTO
from orbit_runner.distribute.process_group import Workers, local_strategy
from orbit_runner.errors import RunnerError, SettingError
from orbit_runner.run_directory.config import read_settings
from orbit_runner.tasks.adapter import TaskAdapter, adapt
from orbit_runner.tasks.assets import assets_of
from orbit_runner.train.build_state import build_checkpoints, build_state
from orbit_runner.train.callbacks.base import CallbackList, make_callbacks
from orbit_runner.train.callbacks.own_callbacks import make_own_callbacks
from orbit_runner.train.engine import EngineBuilder
from orbit_runner.train.records import Records
from orbit_runner.train.request import RunRequest
from orbit_runner.train.run import Run
from orbit_runner.train.run_warnings import run_warnings
from orbit_runner.train.schedule import Plan, make_plan
from orbit_runner.train.step_profiler import StepProfiler
from orbit_runner.train.stop_requests import make_stop_requests
from orbit_runner.utils.log import note, phase


def build_run(request: RunRequest) -> Run:
    """Builds a run. Its state is not restored or initialized yet.

    Raises RunnerError if the settings do not suit the task, the data or the devices.
    """
    # The request: its schedule gets a number of steps.
    workers = Workers(request.strategy)
    if reason := foreign_checkpoints_reason(request.model_dir):
        raise RunnerError(reason, path="--model_dir", code="not-a-run")
    if request.trains:
        _discard_old_assets(request)
    adapter = adapt(request.task, request.config.for_task.task)
    callbacks = CallbackList([*make_callbacks(request.config.callbacks), *request.callbacks])
    request, plan = _plan_run(request, adapter, callbacks)
    config = request.local_config
    warnings = run_warnings(config, plan) if request.trains and workers.is_chief else []
    for text in warnings:
        note(f"warning: {text}")
    # The state.
    phase("building the model")
    if config.runtime.enable_xla and not config.uses_xla:
        note("runtime.enable_xla is ignored: Model Garden experiments use XLA only on GPUs")
    state = build_state(config, adapter, request.strategy)
    if request.trains and workers.is_chief and not state.model.trainable_variables:
        warnings.append("the model has no trainable weights, so the loss changes none")
        note(f"warning: {warnings[-1]}")
    stops = make_stop_requests(request, workers, plan)
    # The engine.
    engine = EngineBuilder(config, adapter, request.strategy, state, str(request.model_dir))
    trainer = evaluator = None
    validation_steps = -1
    if request.trains:
        with request.strategy.scope():
            trainer = engine.build_trainer(
                plan,
                profiler=_make_profiler(request, state.global_step) if workers.is_chief else None,
                records_in_graph=not _ends_loops_at_records(request, workers, callbacks),
            )
    if request.evaluates:
        validation_steps = _validation_steps(config, adapter)
        with local_strategy(request.strategy).scope():
            evaluator = engine.build_evaluator(validation_steps)
    # The callbacks, and what they change the state with.
    own_callbacks = make_own_callbacks(request, state, evaluator, workers)
    callbacks = CallbackList([*own_callbacks, *callbacks.callbacks])
    return Run(
        request=request,
        adapter=adapter,
        workers=workers,
        state=state,
        plan=plan,
        stops=stops,
        checkpoints=build_checkpoints(request, state, workers, callbacks, stops),
        trainer=trainer,
        evaluator=evaluator,
        validation_steps=validation_steps,
        callbacks=callbacks,
        records=Records(request, workers, state.global_step, plan, trainer, warnings),
    )


def _discard_old_assets(request: RunRequest) -> None:
    """Lets a new run compute its assets, if it has any, whatever an interrupted start has left."""
    assets = assets_of(request.task)
    if assets is not None and not checkpoints_of(request.model_dir).committed_steps():
        assets.discard()


def _plan_run(
    request: RunRequest, adapter: TaskAdapter, callbacks: CallbackList
) -> tuple[RunRequest, Plan]:
    """Returns the request with a schedule that has a number of steps, and the plan."""
    # A run that is resumed keeps the interval of its records, also if it is `auto`.
    interval = read_settings(request.model_dir).get("trainer.summary_interval")
    config = with_interval(request.config, interval)
    trainer = config.trainer
    data = getattr(request.local_config.for_task.task, "train_data", None)
    per_epoch = adapter.steps_per_epoch(data)
    if not per_epoch and not request.trains:
        # Epochs cannot be converted to steps, and modes that only evaluate do not need it.
        trainer = trainer.replace(train_epochs=0.0, validation_epochs=0.0)
    plan = make_plan(trainer, per_epoch)
    if request.trains and plan.train_steps < 1:
        raise SettingError(
            "trainer.train_steps", "is 0; set it, or trainer.train_epochs", code="not-set"
        )
    plan = dataclasses.replace(plan, averages_epochs=callbacks.averages_epochs)
    # Not asked for without need, because a task may count its examples for it.
    is_auto = weight_decay(config) == AUTO
    num_examples = adapter.num_examples(data) or 0 if is_auto and data is not None else 0
    if request.trains and is_auto and not num_examples:
        raise SettingError(
            "trainer.optimizer_config.optimizer.adamw.weight_decay_rate",
            "is auto, but the size of the training dataset is unknown\nset a number",
            code="not-set",
        )
    config = follow_run(config, plan.train_steps, num_examples)
    return dataclasses.replace(request, config=config), plan


def _make_profiler(request: RunRequest, global_step: tf.Variable) -> StepProfiler | None:
    if not request.config.trainer.profile_steps:
        return None
    first, last = request.config.trainer.profile_steps
    return StepProfiler(first, last, request.model_dir / "train", global_step)


def _ends_loops_at_records(request: RunRequest, workers: Workers, callbacks: CallbackList) -> bool:
    """Returns whether a loop must end where a record does.

    Workers would have to reduce their metrics together in each record. A run that may return to a
    checkpoint must detect divergence at the same step each time. Orbit writes the records of a
    custom summary manager, one at the end of each loop.
    """
    return (
        workers.count > 1
        or request.config.trainer.rolls_back
        or request.summary_manager is not None
        or callbacks.needs_every_record
    )


def _validation_steps(config: ExperimentConfig, adapter: TaskAdapter) -> int:
    """Returns the number of batches of an evaluation, or -1 if it is not known."""
    configured = config.trainer.validation_steps
    data: Any = getattr(config.for_task.task, "validation_data", None)
    steps = adapter.validation_steps(data, configured)
    if steps:
        return steps
    if configured == 0:
        raise SettingError(
            "trainer.validation_steps", "got 0, allowed: -1 or at least 1", code="out-of-range"
        )
    raise SettingError(
        "task.validation_data.drop_remainder",
        "leaves nothing to evaluate: the dataset is smaller than one batch of "
        f"{data.global_batch_size}",
        code="empty-data",
    )
