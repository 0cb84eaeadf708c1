"""Baselines that train or evaluate the same network on the same batches."""

from __future__ import annotations

import contextlib
import io
import itertools
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras
from official.core import config_definitions, train_lib
from official.modeling import optimization

from benchmarks.networks import ENDLESS_STEPS, Network, build_run, task_of
from benchmarks.tfdata_baseline import tfdata_batches
from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.tasks.adapter import adapt
from orbit_runner.train.build_state import build_state
from orbit_runner.train.inputs.distribute import distribute
from orbit_runner.train.loop import build_controller, quiet_orbit_scope

Run = Callable[[], int]
PIPELINE = ("task.train_data.on_device=false", "task.validation_data.on_device=false")


@contextlib.contextmanager
def silent_scope() -> Iterator[None]:
    """Suppresses the output of Orbit and the progress bars of Keras."""
    with quiet_orbit_scope(), contextlib.redirect_stdout(io.StringIO()):
        yield


def batches(config: ExperimentConfig, task: Any, *, training: bool) -> Any:
    """Returns the batches that a program without this runner would use.

    They come from a plain tf.data pipeline. Sentences and ratings come from this runner's pipeline,
    which is faster.
    """
    dataset = tfdata_batches(config, training=training)
    if dataset is not None:
        return dataset
    section = config.task.train_data if training else config.task.validation_data
    data = resolve_data_config(section, config.runtime)
    return distribute(tf.distribute.get_strategy(), adapt(task), data, config.runtime)


def runner(network: Network, folder: Path, *changes: str) -> Run:
    """Returns a function that trains the network in this runner, with overrides `path=value`."""
    session = build_run(network.config(*changes), folder)
    controller = build_controller(session)

    def run() -> int:
        with silent_scope(), session.strategy.scope():
            controller.train(session.step + network.steps, checkpoint_at_completion=False)
        return network.steps

    return run


def runner_on_pipeline(network: Network, folder: Path, *changes: str) -> Run:
    """Returns the same as `runner`, but with an input pipeline."""
    return runner(network, folder, *PIPELINE, *changes)


def bare_loop(network: Network) -> Run:
    """Returns a handwritten training loop that does only what training requires."""
    config = network.config(*PIPELINE)
    task = task_of(config)
    state = build_state(config, adapt(task), tf.distribute.get_strategy())
    model, optimizer = state.model, state.optimizer
    iterator = iter(batches(config, task, training=True))

    def step(features: Any, labels: Any) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = task.build_losses(labels, model(features, training=True), model.losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def loop(iterator: Any, steps: tf.Tensor) -> tf.Tensor:
        loss = 0.0
        for _ in tf.range(steps):
            loss = step(*next(iterator))
        return loss

    def run() -> int:
        loop(iterator, tf.constant(network.steps)).numpy()
        return network.steps

    return run


class _FitModel(tf_keras.Model):
    """Combines a network and its task's loss in a model for `fit`."""

    def __init__(self, task: Any, network: tf_keras.Model) -> None:
        super().__init__()
        self._task, self._network = task, network

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self._network(inputs, training=training)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None
    ) -> Any:
        return self._task.build_losses(y, y_pred, self._network.losses, sample_weight)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Any:
        # Keras requires a nonempty result, and does not accept a dict of labels.
        metrics = (
            {} if isinstance(y, dict) else super().compute_metrics(x, y, y_pred, sample_weight)
        )
        return metrics or {"steps": tf.ones([])}


def fit(network: Network, steps_per_execution: int = 1) -> Run:
    """Returns a function that trains the network with Keras' `fit`."""
    config = network.config(*PIPELINE)
    task = task_of(config)
    state = build_state(config, adapt(task), tf.distribute.get_strategy())
    model = _FitModel(task, state.model)
    counted = ["accuracy"] if config.task.name == "image_classification" else []
    model.compile(
        optimizer=state.optimizer, metrics=counted, steps_per_execution=steps_per_execution
    )
    data = batches(config, task, training=True)

    def run() -> int:
        with silent_scope():
            model.fit(data, steps_per_epoch=network.steps, epochs=1, verbose=0)
        return network.steps

    return run


def model_garden(network: Network, folder: Path) -> Any:
    """Returns the controller and the strategy of Model Garden's runner, with our task."""
    config = network.config(*PIPELINE)
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        task = _use_tfdata_batches(task_of(config), config)
    # Its `TaskConfig` has no fields for our data sections. Its runner only reads attributes.
    params: Any = types.SimpleNamespace(
        task=config.task,
        trainer=_garden_trainer_config(config, network.steps),
        runtime=config_definitions.RuntimeConfig(distribution_strategy="one_device"),
    )
    with silent_scope():
        runner = train_lib.OrbitExperimentRunner(
            strategy, task, "train_and_eval", params, str(folder)
        )
    return runner.controller, strategy


def _use_tfdata_batches(task: Any, config: ExperimentConfig) -> Any:
    own = task.build_inputs

    def build_inputs(params: Any, input_context: Any = None) -> Any:
        dataset = tfdata_batches(config, training=params.is_training)
        return own(params, input_context) if dataset is None else dataset

    task.build_inputs = build_inputs
    return task


def _garden_trainer_config(
    config: ExperimentConfig, steps: int
) -> config_definitions.TrainerConfig:
    ours = config.trainer.optimizer_config.as_dict()
    kinds = {
        section: {
            "type": ours[section]["type"],
            ours[section]["type"]: _selected_options(ours[section]),
        }
        for section in ("optimizer", "learning_rate")
    }
    return config_definitions.TrainerConfig(
        optimizer_config=optimization.OptimizationConfig(kinds),
        train_steps=ENDLESS_STEPS,
        steps_per_loop=steps,
        summary_interval=steps,
        checkpoint_interval=ENDLESS_STEPS,
        validation_interval=ENDLESS_STEPS,
        validation_steps=-1,
    )


def _selected_options(section: dict[str, Any]) -> dict[str, Any]:
    return dict(section[section["type"]])


def garden_training(network: Network, folder: Path) -> Run:
    """Returns a function that trains the network in Model Garden's runner."""
    controller, strategy = model_garden(network, folder)
    stops = itertools.count(network.steps, network.steps)

    def run() -> int:
        with silent_scope(), strategy.scope():
            controller.train(next(stops), checkpoint_at_completion=False)
        return network.steps

    return run
