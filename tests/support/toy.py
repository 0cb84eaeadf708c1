"""A small regression task whose every number can be worked out by hand."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.config.schema.base import field
from orbit_runner.config.schema.experiment import ExperimentConfig, TaskConfig
from orbit_runner.determinism.numerics import configure_numerics
from orbit_runner.registry import TASKS
from orbit_runner.run_directory.metric_records import SYSTEM
from orbit_runner.state.train_state import TrainState
from orbit_runner.tasks.adapter import adapt
from orbit_runner.tasks.base import Task
from orbit_runner.train import loop
from orbit_runner.train.build_state import build_state
from orbit_runner.train.callbacks.base import Callback
from orbit_runner.train.request import RunRequest
from orbit_runner.train.run import Run
from orbit_runner.train.run_builder import build_run
from orbit_runner.train_lib import run_experiment
from orbit_runner.utils.log import PlainMessages, log_scope
from orbit_runner.utils.metrics import flat_scalars
from tests.support.configs import config_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToyConfig(TaskConfig):
    """Settings of the toy."""

    num_examples: int = field(20, ge=1, help="size of both sets")
    nan_from: int = field(10**9, help="step from which training data is not a number")
    knows_its_size: bool = field(True, help="whether it tells the size of its sets")
    aggregates: bool = field(False, help="whether it gathers outputs on the host")
    outputs: int = field(1, help="width of the output, to make another model")
    batch_norm: bool = field(False, help="whether the model has moving averages")
    relu: bool = field(False, help="whether a ReLU hides what is not a number from the loss")
    mask: bool = field(False, help="whether the model has a constant of -inf")


class ToyTask(Task):
    """y = x · w; the loss of an example is (y − label)²; data is a function of the position."""

    task_config: ToyConfig

    def build_model(self) -> tf_keras.Model:
        inputs = tf_keras.Input([3])
        x = tf_keras.layers.BatchNormalization()(inputs) if self.task_config.batch_norm else inputs
        width = self.task_config.outputs
        outputs = tf_keras.layers.Dense(width, use_bias=False, name="w", dtype="float32")(x)
        if self.task_config.relu:
            # What tf.nn.relu does on many processors, and on all of them here.
            outputs = tf_keras.layers.Lambda(lambda y: tf.where(y > 0, y, 0.0))(outputs)
        model = tf_keras.Model(inputs, outputs)
        if self.task_config.mask:
            model.mask = tf.Variable([0.0, -np.inf], trainable=False, name="mask")
        return model

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        n = self.task_config.num_examples
        features = np.sin(np.arange(3 * n, dtype=np.float32)).reshape(n, 3)
        return features, features.sum(axis=1, keepdims=True)

    def build_inputs(
        self, params: Any, input_context: Any = None, start_step: int = 0
    ) -> tf.data.Dataset:
        features, labels = self.arrays()
        replicas = input_context.num_replicas_in_sync if input_context else 1
        size = params.global_batch_size // replicas
        n = len(features)
        bad = self.task_config.nan_from * replicas if params.seed == 0 else 10**9

        def train(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            rows = (index * size + tf.range(size, dtype=tf.int64)) % n
            x = tf.where(index >= bad, np.float32(np.nan), tf.gather(features, rows))
            return x, tf.gather(labels, rows)

        def evaluate(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            rows = index * size + tf.range(size, dtype=tf.int64)
            weights = tf.cast(rows < n, tf.float32)
            rows = tf.minimum(rows, n - 1)
            return tf.gather(features, rows), tf.gather(labels, rows), weights

        if params.is_training:
            batches = tf.data.Dataset.range(start_step * replicas, 10**12).map(train)
            endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
            return batches.apply(endless)
        steps = -(-n // params.global_batch_size)
        return tf.data.Dataset.range(steps * replicas).map(evaluate)

    def num_examples(self, params: Any) -> int | None:
        return self.task_config.num_examples if self.task_config.knows_its_size else None

    def example_losses(self, labels: tf.Tensor, model_outputs: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(tf.square(model_outputs - labels), axis=-1)

    def build_metrics(self, training: bool = True) -> list[tf_keras.metrics.Metric]:
        return [tf_keras.metrics.MeanAbsoluteError(name="error")]


class GatheringToy(ToyTask):
    """Gathers labels on the host and gives their sum as a metric."""

    def validation_step(self, inputs: Any, model: Any, metrics: Any = None) -> dict[str, Any]:
        logs = super().validation_step(inputs, model, metrics)
        return {**logs, "labels": inputs[1], "weights": inputs[2]}

    def aggregate_logs(self, state: Any, step_logs: Any) -> list[float]:
        pairs = zip(step_logs["labels"], step_logs["weights"], strict=True)
        sums = [float(tf.reduce_sum(label[:, 0] * weight)) for label, weight in pairs]
        return [*(state or []), *sums]

    def reduce_aggregated_logs(self, aggregated_logs: Any, global_step: Any = None) -> Any:
        return {"label_sum": sum(aggregated_logs), "seen_at": int(global_step.numpy())}


def make_toy(config: ToyConfig, **kwargs: Any) -> ToyTask:
    return (GatheringToy if config.aggregates else ToyTask)(config, **kwargs)


TASKS.register("toy", config=ToyConfig, target=make_toy)

_BASE = {
    "task.name": "toy",
    "task.train_data.global_batch_size": 8,
    "task.validation_data.global_batch_size": 8,
    "trainer.train_steps": 20,
    "trainer.validation_interval": 5,
    "trainer.checkpoint_interval": 5,
    "trainer.summary_interval": 5,
    "trainer.optimizer_config.optimizer.type": "sgd",
    "trainer.optimizer_config.learning_rate.type": "constant",
    "trainer.optimizer_config.learning_rate.constant.learning_rate": 0.1,
    "runtime.distribution_strategy": "one_device",
}


def toy_config(**changes: Any) -> ExperimentConfig:
    """Returns the toy's config; `__` in a name stands for a dot."""
    return config_of(_BASE, **changes)


def toy_task(config: ExperimentConfig) -> ToyTask:
    return make_toy(config.task)


def make_strategy(name: str) -> tf.distribute.Strategy:
    if name == "off":
        return tf.distribute.get_strategy()
    if name == "one_device":
        return tf.distribute.OneDeviceStrategy("CPU:0")
    # Not the default reduction: it makes a collective group, and the groups of two strategies in
    # one process get the same keys, so that the second fails if shapes or sizes differ.
    devices = [f"CPU:{index}" for index in range(int(name.removeprefix("mirrored")))]
    return tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())


def run(
    config: ExperimentConfig,
    model_dir: Path,
    mode: str = "train_and_eval",
    strategy: str | tf.distribute.Strategy = "one_device",
    *,
    notes: Notes | None = None,
    callbacks: Sequence[Callback] = (),
    **kwargs: Any,
) -> tuple[tf_keras.Model, dict[str, Any]]:
    """Runs an experiment as the command line does, but in this process."""
    if isinstance(strategy, str):
        strategy = make_strategy(strategy)
    configure_numerics(config.runtime)
    with strategy.scope():
        task = TASKS.get(config.task.name).load()(config.task, logging_dir=str(model_dir))
    heard = [] if notes is None else [notes]
    with notes.listening_scope() if notes is not None else contextlib.nullcontext():
        return run_experiment(
            strategy, task, mode, config, str(model_dir), callbacks=[*callbacks, *heard], **kwargs
        )


class _Copy(Callback):
    """Saves at the first end of a loop from a step on, and copies the run directory then."""

    def __init__(self, step: int, directory: Path) -> None:
        self._step = step
        self._directory = directory

    def on_loop_end(self, run: Any, logs: object) -> None:
        if run.step >= self._step and not self._directory.exists():
            run.checkpoints.save()
            run.checkpoints.sync()
            shutil.copytree(run.model_dir, self._directory)


class Resumed(NamedTuple):
    """A run, and its copy that was made at a step and then resumed, with equal weights."""

    model: tf_keras.Model
    logs: dict[str, Any]  # The results of the run.
    resumed_logs: dict[str, Any]  # The results of the copy.
    notes: Notes  # What the copy reported.


def run_and_resume(
    config: ExperimentConfig,
    folder: Path,
    strategy: str = "one_device",
    *,
    at: int = 7,
) -> Resumed:
    """Trains in `folder/whole`, and resumes a copy of that directory, `folder/parts`.

    The copy is made when a loop ends at step `at` or later, so it is what a kill at that moment
    leaves. Asserts that both runs end with the same weights. A run that is stopped and resumed
    would need one more program than this, and tracing programs takes most of the time.

    Args:
        config: The experiment.
        folder: A directory without runs.
        strategy: The strategy of the run.
        at: The first step at which the copy may be made.
    """
    copy = folder / "parts"
    notes = Notes()
    model, logs = run(config, folder / "whole", strategy=strategy, callbacks=[_Copy(at, copy)])
    parts, resumed_logs = run(config, copy, strategy=strategy, notes=notes)
    (start,) = notes.started_at
    assert at <= start < config.trainer.train_steps
    assert weights_fingerprint(parts) == weights_fingerprint(model)
    return Resumed(model, logs, resumed_logs, notes)


def state_of(config: ExperimentConfig, strategy: tf.distribute.Strategy) -> TrainState:
    configure_numerics(config.runtime)
    return build_state(config, adapt(toy_task(config)), strategy)


def session_of(
    config: ExperimentConfig,
    model_dir: Path,
    strategy: tf.distribute.Strategy,
    *,
    task: Any = None,
    notes: Notes | None = None,
    resume: str = "same",
) -> Run:
    configure_numerics(config.runtime)
    if task is None:
        with strategy.scope():
            task = TASKS.get(config.task.name).load()(config.task)
    return build_run(
        RunRequest(
            config=config,
            task=task,
            mode="train_and_eval",
            model_dir=model_dir,
            strategy=strategy,
            resume=resume,
            callbacks=[] if notes is None else [notes],
        )
    )


def trained(
    config: ExperimentConfig,
    model_dir: Path,
    strategy: tf.distribute.Strategy,
    notes: Notes | None = None,
) -> Run:
    """Trains and evaluates, and returns the run for inspection."""
    session = session_of(config, model_dir, strategy, notes=notes)
    controller = loop.build_controller(session)
    with notes.listening_scope() if notes is not None else contextlib.nullcontext():
        session.checkpoints.restore_or_initialize(session.task)
        with strategy.scope():
            loop.train(session, controller, evaluates=True)
    return session


def descent(config: ExperimentConfig, steps: int) -> list[tuple[np.ndarray, float, float]]:
    """Works out the toy's training in numpy.

    Returns:
        The weights [3, 1] after each step from 0 on, with the loss and the mean absolute error of
        the step that comes next.
    """
    state = state_of(config, make_strategy("one_device"))
    (kernel,) = (value.astype(np.float64) for value in state.model.get_weights())
    features, labels = toy_task(config).arrays()
    batch, records = config.task.train_data.global_batch_size, []
    for step in range(steps + 1):
        rows = (step * batch + np.arange(batch)) % len(features)
        off = features[rows] @ kernel - labels[rows]
        records.append((kernel, float(np.mean(off**2)), float(np.mean(np.abs(off)))))
        kernel = kernel - 0.1 * 2 / batch * features[rows].T @ off
    return records


def weights(model: tf_keras.Model) -> list[np.ndarray]:
    return [variable.numpy() for variable in model.variables]


def records(model_dir: Path, split: str) -> list[dict[str, Any]]:
    lines = (model_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["split"] == split]


def repeatable_records(model_dir: Path, *splits: str) -> list[dict[str, Any]]:
    """Returns the records without the values that depend on the time or the machine."""
    varying = ("time", "steps_per_second", "tflops_per_second", SYSTEM)
    return [
        {name: value for name, value in record.items() if not name.startswith(varying)}
        for split in splits
        for record in records(model_dir, split)
    ]


class Notes(Callback):
    """Records what a run logs, evaluates, and reports about its exactness."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.evaluations: list[tuple[int, dict[str, Any]]] = []
        self.started_at: list[int] = []
        self.reasons: list[str] | None = None

    def listening_scope(self) -> contextlib.AbstractContextManager[None]:
        return log_scope(PlainMessages(self.note))

    def note(self, text: str) -> None:
        if not text.startswith("note: runtime.intra_op_threads"):  # Depends on the machine.
            self.notes.append(text)

    def on_train_begin(self, run: Any) -> None:
        self.started_at.append(run.step)

    def on_evaluate(self, run: Any, logs: Any) -> None:
        self.evaluations.append((run.step, flat_scalars(logs)))

    def on_train_end(self, run: Any) -> None:
        self.reasons = run.inexact_reasons()
