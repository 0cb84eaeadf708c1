"""Presents the parts of a run as the parts of Model Garden's `OrbitExperimentRunner`.

Subclasses of the runner replace some parts and read others. The parts that they build are used in
place of the runner's.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import orbit
import tensorflow as tf

from orbit_runner.checkpoint.finite_check import non_finite_error, non_finite_variables
from orbit_runner.checkpoint.manager import Checkpoints
from orbit_runner.checkpoint.record import CheckpointRecord
from orbit_runner.errors import RunnerError
from orbit_runner.tasks.initial_weights import LoadedWeights
from orbit_runner.train.callbacks.base import Logs, RunView
from orbit_runner.train.callbacks.best_checkpoint import BestKeeper
from orbit_runner.train.evaluator import EXAMPLES
from orbit_runner.train.run import Run
from orbit_runner.utils.files import read_json_object

if TYPE_CHECKING:
    import tf_keras
    from official.core import base_task
    from official.modeling import hyperparams
    from official.modeling.multitask import base_model

    from orbit_runner.config.schema.experiment import ExperimentConfig
    from orbit_runner.tasks.metrics import TaskMetric
    from orbit_runner.tasks.multitask import JointTask


class GardenTrainer(orbit.AbstractTrainer, orbit.AbstractEvaluator):
    """Trainer and evaluator of a run, with the attributes of Model Garden's `Trainer`.

    `config` is the experiment as the user passed it. `checkpoint_exporter` is what the run's
    `ExporterCallback` calls, or None if the run keeps the best checkpoint itself.
    """

    def __init__(
        self,
        run: Run,
        config: ExperimentConfig | hyperparams.Config,
        checkpoint_exporter: Any = None,
    ) -> None:
        self.run = run
        self.config = config
        self.checkpoint_exporter = checkpoint_exporter

    @property
    def model(self) -> tf_keras.Model | base_model.MultiTaskBaseModel:
        """The model."""
        return self.run.state.model

    @property
    def optimizer(self) -> tf_keras.optimizers.Optimizer | tf_keras.optimizers.legacy.Optimizer:
        """The optimizer, not wrapped in an optimizer that averages the weights."""
        return self.run.state.optimizer

    @property
    def global_step(self) -> tf.Variable:
        """The global step, an int64 scalar."""
        return self.run.state.global_step

    @property
    def task(self) -> base_task.Task | JointTask:
        """The task."""
        return self.run.task

    @property
    def strategy(self) -> tf.distribute.Strategy:
        """The distribution strategy."""
        return self.run.strategy

    @functools.cached_property
    def checkpoint(self) -> tf.train.Checkpoint:
        """The checkpoint of all variables that change during training."""
        return self.run.state.checkpoint()

    @property
    def train_loss(self) -> tf_keras.metrics.Metric | None:
        """The mean training loss, or None in modes that only evaluate."""
        return getattr(self.run.trainer, "_loss", None)

    @property
    def train_metrics(self) -> list[TaskMetric]:
        """The task's training metrics."""
        return list(getattr(self.run.trainer, "_metrics", ()))

    @property
    def validation_loss(self) -> tf_keras.metrics.Metric | None:
        """The mean validation loss, or None in modes that only train."""
        return getattr(self.run.evaluator, "_loss", None)

    @property
    def validation_metrics(self) -> list[TaskMetric]:
        """The task's validation metrics."""
        return list(getattr(self.run.evaluator, "_metrics", ()))

    def initialize(self) -> None:
        """Lets the task initialize the model, for example from another checkpoint."""
        self.task.initialize(self.model)

    def train(self, num_steps: tf.Tensor) -> dict[str, Any]:
        """Runs `num_steps` steps (int32 scalar) and returns loss, metrics and learning rate."""
        assert self.run.trainer is not None
        return self.run.trainer.train(num_steps)

    def evaluate(self, num_steps: tf.Tensor) -> dict[str, Any]:
        """Evaluates `num_steps` batches (int32 scalar, -1 for all) and returns loss and metrics.

        Also saves the best checkpoint, for controllers that this runner did not build.
        """
        assert self.run.evaluator is not None
        logs = self.run.evaluator.evaluate(num_steps)
        if self.run.best is not None:
            self.run.best.on_evaluate(self.run, logs)
        return self.to_model_garden_logs(logs)

    def to_model_garden_logs(self, logs: Logs) -> dict[str, Any]:
        """Returns the results of an evaluation under Model Garden's names, without other entries.

        `logs` is {} if there was no evaluation.
        """
        garden_logs = _remove_example_counts(logs)
        if not logs or self.run.best is None:
            return garden_logs
        metric = self.config.trainer.best_checkpoint_eval_metric
        return {**garden_logs, f"best_{metric}": self._best_logs().get(metric, math.nan)}

    def _best_logs(self) -> Logs:
        if self.checkpoint_exporter is not None:
            return self.checkpoint_exporter.best_ckpt_logs
        subdirectory = self.run.config.trainer.best_checkpoint_export_subdir
        info = self.run.model_dir / subdirectory / "info.json"
        try:
            return read_json_object(info)
        except (OSError, ValueError):  # Removed or damaged during the run.
            return {}


def _remove_example_counts(logs: Logs) -> dict[str, object]:
    return {
        name: _remove_example_counts(value) if isinstance(value, Mapping) else value
        for name, value in logs.items()
        if name != EXAMPLES
    }


class ExporterCallback(BestKeeper):
    """Calls an exporter after each evaluation, with the averaged weights if an average is kept."""

    def __init__(self, exporter: Any, checkpoint: Callable[[], tf.train.Checkpoint]) -> None:
        self._exporter = exporter
        self._checkpoint = checkpoint  # Returns what is exported.

    def on_evaluate(self, run: RunView, logs: Logs) -> None:
        """Exports the checkpoint."""
        ema = run.state.ema
        with ema.applied_scope() if ema is not None else contextlib.nullcontext():
            self._exporter.maybe_export_checkpoint(self._checkpoint(), dict(logs), run.step)


class GardenCheckpoints(tf.train.CheckpointManager):
    """The checkpoints of a run, with the methods of `tf.train.CheckpointManager`.

    It is a subclass only because Orbit's controller requires one, and uses nothing of the base
    class.
    """

    def __init__(self, run: Run, checkpoint: tf.train.Checkpoint) -> None:
        self._run = run
        self._tf_checkpoint = checkpoint
        assert isinstance(run.checkpoints, Checkpoints)  # A user's manager is not wrapped again.
        self._folder = run.checkpoints.folder
        self._last_saved_step = run.step

    @property
    def checkpoint(self) -> tf.train.Checkpoint:
        """The `tf.train.Checkpoint` that is saved."""
        return self._tf_checkpoint

    @property
    def checkpoint_interval(self) -> int:
        """The number of steps between checkpoints."""
        return self._run.plan.checkpoint_interval

    @property
    def directory(self) -> str:
        """The directory of the checkpoints."""
        return self._run.checkpoints.directory

    @property
    def checkpoints(self) -> list[str]:
        """The paths of the checkpoints, oldest first."""
        return [str(self._folder.prefix(step)) for step in self._folder.committed_steps()]

    @property
    def latest_checkpoint(self) -> str | None:
        """The path of the latest checkpoint, or None if there are no checkpoints."""
        return self._run.checkpoints.find_latest()

    def save(
        self,
        checkpoint_number: int | tf.Variable | tf.Tensor | None = None,
        check_interval: bool = True,
        options: tf.train.CheckpointOptions | None = None,
    ) -> str | None:
        """Saves a checkpoint and returns its path, or None if no checkpoint is due.

        Ignores `checkpoint_number`, because checkpoints are named after the global step, and
        `options`, because `enable_async_checkpointing` replaces it.
        """
        step = self._run.step
        if check_interval and step - self._last_saved_step < self.checkpoint_interval:
            return None
        self._run.checkpoints.save()
        self._last_saved_step = step
        return str(self._folder.prefix(step))

    def restore_or_initialize(self) -> str | None:
        """Restores the latest complete checkpoint, or lets the task initialize the model.

        Returns the path of the checkpoint, or None if there was no checkpoint.
        """
        self._run.restore_or_initialize()
        self._last_saved_step = self._run.step
        return self._run.checkpoints.started_from

    def sync(self) -> None:
        """Waits until the last checkpoint is on disk."""
        self._run.checkpoints.sync()


class ManagedCheckpoints:
    """A custom `tf.train.CheckpointManager` with the interface of a run's checkpoints."""

    def __init__(
        self, run: Run, manager: tf.train.CheckpointManager, *, asynchronous: bool
    ) -> None:
        self._state = run.state
        self._strategy = run.strategy
        self._manager = manager
        self.conditions = run.checkpoints.conditions
        # A custom manager restores its latest checkpoint completely or raises, and stores no
        # record.
        self.fell_back = False
        self.restored: CheckpointRecord | None = None
        self.started_from: str | None = None
        self.loaded: LoadedWeights | None = None
        self._options = tf.train.CheckpointOptions(enable_async=asynchronous)
        self._saved: int | None = None

    @property
    def directory(self) -> str:
        """The directory of the manager."""
        return str(self._manager.directory)

    @property
    def _step(self) -> int:
        return int(self._state.global_step.numpy())

    def find_latest(self) -> str | None:
        """Returns the path of the latest checkpoint, or None if there are no checkpoints."""
        return tf.train.latest_checkpoint(self.directory)

    def check(self, path: str) -> None:
        """Does nothing, because the checkpoints of a custom manager have no fingerprint."""

    def restore_or_initialize(self, task: object) -> str | None:
        """Lets the manager restore its latest checkpoint or initialize the model.

        Returns the path of the checkpoint, or None if there was no checkpoint. `task` is ignored,
        because the manager has its own `init_fn`.
        """
        with self._strategy.scope():
            path: str | None = self._manager.restore_or_initialize()
        if path is None and self._state.ema is not None:
            self._state.ema.reset()
        self._saved = self._step if path is not None else None
        self.started_from = path
        return path

    def restore(self, path: str) -> None:
        """Restores a checkpoint, given by its path without suffix.

        Raises RunnerError if the checkpoint cannot be read.
        """
        try:
            with self._strategy.scope():
                self._manager.checkpoint.restore(path)
        except tf.errors.OpError as error:
            raise RunnerError(
                f"cannot read the checkpoint {path}: {error.message}", code="damaged-checkpoint"
            ) from error
        self._saved = self._step

    def restore_latest(self) -> str | None:
        """Restores the latest checkpoint and returns its path, or None if none exists."""
        path = self.find_latest()
        if path is not None:
            self.restore(path)
        return path

    def raise_failure(self) -> None:
        """Does nothing, because a custom manager raises its errors itself."""

    def save(self) -> None:
        """Saves a checkpoint, unless the current step is already saved.

        Raises Diverged if the weights are not finite.
        """
        step = self._step
        if step == self._saved:
            return
        non_finite = non_finite_variables(self._state.model.trainable_variables)
        if non_finite:
            raise non_finite_error(step, non_finite)
        self._manager.save(checkpoint_number=step, check_interval=False, options=self._options)
        self._saved = step

    @contextlib.contextmanager
    def completed_saves_scope(self) -> Iterator[None]:
        """Waits for the last checkpoint at the end of a `with` block, even after an error."""
        try:
            yield
        finally:
            self.sync()

    def sync(self) -> None:
        """Waits until the last checkpoint is on disk."""
        self._manager.sync()
