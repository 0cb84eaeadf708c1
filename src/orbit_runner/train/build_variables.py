"""Creates the variables of Keras models that create them only when they are first called."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras

from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.model_garden.task_adapter.data_sections import section_of
from orbit_runner.tasks.adapter import TaskAdapter
from orbit_runner.tf_internals import is_functional
from orbit_runner.train.gradients import GradientRecorder
from orbit_runner.train.inputs.distribute import distribute
from orbit_runner.utils.autograph import convert


def build_missing_variables(
    config: ExperimentConfig,
    adapter: TaskAdapter,
    model: Any,
    optimizer: Any,
    strategy: tf.distribute.Strategy,
) -> None:
    """Creates the variables that a model still lacks, by tracing a step without running it.

    Otherwise, a checkpoint could not be matched with them. The optimizer does not change. Does
    nothing if the task has no training data. Must be called in the strategy's scope.
    """
    if not _lacks_variables(model):
        return
    if adapter.subtasks:
        _build_joint_variables(config, adapter, model, optimizer, strategy)
        return
    data = getattr(config.for_task.task, "train_data", None)
    if data is None:
        return
    task = adapter.task
    metrics = [*task.build_metrics(training=True), *getattr(model, "metrics", ())]

    def step(inputs: Any) -> None:
        task.train_step(inputs, model=model, optimizer=GradientRecorder(optimizer), metrics=metrics)

    found = distribute(strategy, adapter, resolve_data_config(data, config.runtime), config.runtime)
    _trace(step, task, strategy, found.element_spec)


def _build_joint_variables(
    config: ExperimentConfig, adapter: TaskAdapter, model: Any, optimizer: Any, strategy: Any
) -> None:
    joint = adapter.task
    metrics = {name: task.build_metrics(training=True) for name, task in joint.tasks.items()}

    def step(inputs: Any) -> None:
        joint.multi.joint_train_step(
            inputs,
            multi_task_model=model,
            optimizer=GradientRecorder(optimizer),
            task_metrics=metrics,
        )

    specs = {}
    for name, part in adapter.subtasks.items():
        data = resolve_data_config(
            section_of(part.task.task_config, "train_data", name), config.runtime
        )
        specs[name] = distribute(strategy, part, data, config.runtime).element_spec
    _trace(step, joint.multi, strategy, specs)


def _trace(step: Any, task: Any, strategy: tf.distribute.Strategy, spec: Any) -> None:
    run = convert(lambda inputs: strategy.run(step, args=(inputs,)), task)
    tf.function(run, autograph=False).get_concrete_function(spec)


def _lacks_variables(model: Any) -> bool:
    try:
        _ = model.trainable_variables
    except ValueError:  # Keras raises it for a model that was never called.
        return True
    if is_functional(model) and model.built:
        return False
    return any(map(_is_unbuilt_layer, getattr(model, "submodules", ())))


def _is_unbuilt_layer(part: Any) -> bool:
    base = tf_keras.layers.Layer
    if not isinstance(part, base) or isinstance(part, tf_keras.Model) or part.built:
        return False
    return type(part).build is not base.build
