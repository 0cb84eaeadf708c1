"""Builds the model, the optimizer and everything else that changes with a step.

Also the variables of Keras models that create them only when they are first called, and the
checkpoints of the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orbit
import tensorflow as tf
import tf_keras

from orbit_runner.checkpoint.fingerprint import non_finite_variables
from orbit_runner.checkpoint.manager import Checkpoints, RunConditions
from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.determinism.numerics import seed_everything
from orbit_runner.determinism.numerics_record import KERAS_3, describe_numerics
from orbit_runner.distribute.process_group import Workers, describe_strategy
from orbit_runner.errors import SettingError
from orbit_runner.model_garden.task_adapter import optimizer_of, section_of
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.state.ema import OptimizerAverage, WeightAverage
from orbit_runner.state.replica_state import ReplicaState
from orbit_runner.state.train_state import TrainState
from orbit_runner.state.trained_layers import TrainedLayers
from orbit_runner.tasks.adapter import TaskAdapter
from orbit_runner.tasks.assets import digest_of
from orbit_runner.tasks.keras.keras_3 import Keras3Model
from orbit_runner.tf_internals import averages_of, build_slots, is_functional, keeps_averages
from orbit_runner.train.callbacks.base import CallbackList
from orbit_runner.train.gradients import GradientRecorder
from orbit_runner.train.inputs.distribute import distribute
from orbit_runner.train.request import RunRequest
from orbit_runner.train.stop_requests import StopRequests
from orbit_runner.utils.autograph import convert

if TYPE_CHECKING:
    from orbit_runner.state.learning_rates import Optimizer
    from orbit_runner.utils.types import Tensors


def build_state(
    config: ExperimentConfig, adapter: TaskAdapter, strategy: tf.distribute.Strategy
) -> TrainState:
    """Returns the state at step 0, initialized with the seed of the config.

    Sets the global seeds of this process, and enters the strategy's scope itself.
    """
    seed_everything(config.runtime.seed, keep_objects=config.is_official)
    task = adapter.task
    with strategy.scope():
        model = adapter.build_model()
        optimizer, average = optimizer_of(config, task, model)
        build_missing_variables(config, adapter, model, optimizer, strategy)
        # Before the slots and averages are created, which only trained variables have.
        layers = _trained_layers(config, adapter, model)
        # Slot variables created in the first step would be missing when a checkpoint is restored.
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        build_slots(inner, model.trainable_variables)
        ema: WeightAverage | None = None
        if average is not None:
            ema = WeightAverage(average, model, strategy)
        elif keeps_averages(optimizer):
            ema = OptimizerAverage(averages_of(optimizer), model)
        return TrainState(
            model=model,
            optimizer=optimizer,
            ema=ema,
            global_step=orbit.utils.create_global_step(),
            recoveries=tf.Variable(
                0,
                dtype=tf.int64,
                trainable=False,
                name="recoveries",
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            ),
            replica_state=ReplicaState(model, strategy),
            non_finite=tuple(
                variable.name for variable in non_finite_variables(_fixed_variables(model))
            ),
            trained_layers=layers,
            assets=digest_of(task),  # `build_model` has asked for all of them.
        )


def _trained_layers(
    config: ExperimentConfig, adapter: TaskAdapter, model: tf_keras.Model
) -> TrainedLayers | None:
    settings = config.trainer.fine_tuning
    if settings is None:
        return None
    if adapter.subtasks:
        raise SettingError(
            "trainer.fine_tuning",
            "is not supported when several tasks are trained; omit it",
            code="not-supported",
        )
    return TrainedLayers(settings, model)


def _fixed_variables(model: tf_keras.Model) -> list[tf.Variable]:
    """Returns the non-trainable variables that a worker can read without the other workers."""
    return [
        variable
        for variable in model.non_trainable_variables
        if isinstance(variable, tf.Variable)
        and variable.synchronization != tf.VariableSynchronization.ON_READ
    ]


def build_missing_variables(
    config: ExperimentConfig,
    adapter: TaskAdapter,
    model: tf.Module,
    optimizer: Optimizer,
    strategy: tf.distribute.Strategy,
) -> None:
    """Creates the variables that a model still lacks, by tracing a step without running it.

    Otherwise, a checkpoint could not be matched with them. The optimizer does not change. Does
    nothing if the task has no training data. Must be called in the strategy's scope.
    """
    data = getattr(config.for_task.task, "train_data", None)
    if not _lacks_variables(model) or (data is None and not adapter.subtasks):
        return
    task = adapter.task

    def spec_of(part: TaskAdapter, section: Any) -> Any:
        resolved = resolve_data_config(section, config.runtime)
        return distribute(strategy, part, resolved, config.runtime).element_spec

    def step(inputs: Tensors) -> None:
        recorder = GradientRecorder(optimizer)
        if adapter.subtasks:
            task.multi.joint_train_step(
                inputs, multi_task_model=model, optimizer=recorder, task_metrics=metrics
            )
        else:
            task.train_step(inputs, model=model, optimizer=recorder, metrics=metrics)

    metrics: Any
    if adapter.subtasks:
        metrics = {name: part.build_metrics(training=True) for name, part in task.tasks.items()}
        spec = {
            name: spec_of(part, section_of(part.task.task_config, "train_data", name))
            for name, part in adapter.subtasks.items()
        }
    else:
        metrics = [*task.build_metrics(training=True), *getattr(model, "metrics", ())]
        spec = spec_of(adapter, data)
    owner = task.multi if adapter.subtasks else task
    run = convert(lambda inputs: strategy.run(step, args=(inputs,)), owner)
    tf.function(run, autograph=False).get_concrete_function(spec)


def _lacks_variables(model: tf.Module) -> bool:
    try:
        _ = model.trainable_variables
    except ValueError:  # Keras raises it for a model that was never called.
        return True
    if is_functional(model) and model.built:
        return False
    return any(map(_is_unbuilt_layer, getattr(model, "submodules", ())))


def _is_unbuilt_layer(part: object) -> bool:
    base = tf_keras.layers.Layer
    if not isinstance(part, base) or isinstance(part, tf_keras.Model) or part.built:
        return False
    return type(part).build is not base.build


def build_checkpoints(
    request: RunRequest,
    state: TrainState,
    workers: Workers,
    callbacks: CallbackList,
    stops: StopRequests,
) -> Checkpoints:
    """Returns the checkpoints of a run, whose records contain the state of its callbacks."""
    config = request.config
    packages = [*request.local_config.data.packages()]
    if isinstance(state.model, Keras3Model):
        packages.append(KERAS_3)
    return Checkpoints(
        config,
        state,
        RunDirectory(request.model_dir),
        workers,
        RunConditions(
            config=config_fingerprint(config),
            strategy=describe_strategy(request.strategy),
            numerics=describe_numerics(config.runtime, packages),
            is_required=request.resume != "override",
            callbacks=callbacks.get_state if request.trains else dict,
            stopped=lambda: stops.reason,
        ),
        asynchronous=request.asynchronous,
        writes=request.trains,
    )
