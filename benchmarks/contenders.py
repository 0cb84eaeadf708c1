"""Contenders that train or evaluate the same network on the same batches."""

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

from benchmarks.networks import MUCH, Network, session_of, task_of
from benchmarks.usual import usual_batches
from orbit_runner.config.schema.data import with_seed
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.tasks.adapter import adapt
from orbit_runner.train.build_state import build_state
from orbit_runner.train.controller import build_controller, quiet_orbit
from orbit_runner.train.inputs.distribute import distribute

Run = Callable[[], int]
PIPELINE = ("task.train_data.on_device=false", "task.validation_data.on_device=false")


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Suppresses the output of Orbit and the progress bars of Keras."""
    with quiet_orbit(), contextlib.redirect_stdout(io.StringIO()):
        yield


def batches(config: ExperimentConfig, task: Any, *, training: bool) -> Any:
    """Returns the batches that a program without this runner would use.

    They come from the usual pipeline. Sentences and ratings come from this runner's pipeline, which
    is faster.
    """
    usual = usual_batches(config, training=training)
    if usual is not None:
        return usual
    section = config.task.train_data if training else config.task.validation_data
    data = with_seed(section, config.runtime)
    return distribute(tf.distribute.get_strategy(), adapt(task), data, config.runtime)


def runner(network: Network, folder: Path, *changes: str) -> Run:
    """Returns a function that trains the network in this runner, with overrides `path=value`."""
    session = session_of(network.config(*changes), folder)
    controller = build_controller(session)

    def run() -> int:
        with silent(), session.strategy.scope():
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


class _Fitted(tf_keras.Model):
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
        found = {} if isinstance(y, dict) else super().compute_metrics(x, y, y_pred, sample_weight)
        return found or {"steps": tf.ones([])}


def fit(network: Network, steps_per_execution: int = 1) -> Run:
    """Returns a function that trains the network with Keras' `fit`."""
    config = network.config(*PIPELINE)
    task = task_of(config)
    state = build_state(config, adapt(task), tf.distribute.get_strategy())
    model = _Fitted(task, state.model)
    counted = ["accuracy"] if config.task.name == "image_classification" else []
    model.compile(
        optimizer=state.optimizer, metrics=counted, steps_per_execution=steps_per_execution
    )
    data = batches(config, task, training=True)

    def run() -> int:
        with silent():
            model.fit(data, steps_per_epoch=network.steps, epochs=1, verbose=0)
        return network.steps

    return run


def model_garden(network: Network, folder: Path) -> Any:
    """Returns the controller and the strategy of Model Garden's runner, with our task."""
    config = network.config(*PIPELINE)
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        task = _fed_as_usual(task_of(config), config)
    # Its `TaskConfig` has no fields for our data sections. Its runner only reads attributes.
    params: Any = types.SimpleNamespace(
        task=config.task,
        trainer=_their_trainer(config, network.steps),
        runtime=config_definitions.RuntimeConfig(distribution_strategy="one_device"),
    )
    with silent():
        made = train_lib.OrbitExperimentRunner(
            strategy, task, "train_and_eval", params, str(folder)
        )
    return made.controller, strategy


def _fed_as_usual(task: Any, config: ExperimentConfig) -> Any:
    own = task.build_inputs

    def build_inputs(params: Any, input_context: Any = None) -> Any:
        usual = usual_batches(config, training=params.is_training)
        return own(params, input_context) if usual is None else usual

    task.build_inputs = build_inputs
    return task


def _their_trainer(config: ExperimentConfig, steps: int) -> config_definitions.TrainerConfig:
    ours = config.trainer.optimizer_config.as_dict()
    kinds = {
        section: {"type": ours[section]["type"], ours[section]["type"]: _chosen(ours[section])}
        for section in ("optimizer", "learning_rate")
    }
    return config_definitions.TrainerConfig(
        optimizer_config=optimization.OptimizationConfig(kinds),
        train_steps=MUCH,
        steps_per_loop=steps,
        summary_interval=steps,
        checkpoint_interval=MUCH,
        validation_interval=MUCH,
        validation_steps=-1,
    )


def _chosen(section: dict[str, Any]) -> dict[str, Any]:
    return dict(section[section["type"]])


def garden_training(network: Network, folder: Path) -> Run:
    """Returns a function that trains the network in Model Garden's runner."""
    controller, strategy = model_garden(network, folder)
    stops = itertools.count(network.steps, network.steps)

    def run() -> int:
        with silent(), strategy.scope():
            controller.train(next(stops), checkpoint_at_completion=False)
        return network.steps

    return run
