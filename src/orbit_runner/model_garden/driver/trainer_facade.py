"""Parts of a run in the shapes that Model Garden's `OrbitExperimentRunner` has them.

A subclass of it replaces some parts and looks into others. Ours are shown to it as it knows them,
and what it made itself is put in the place of ours.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import orbit
import tensorflow as tf

from orbit_runner.checkpoint.finite_check import non_finite_error, non_finite_variables
from orbit_runner.checkpoint.manager import Checkpoints
from orbit_runner.checkpoint.metadata import CheckpointRecord
from orbit_runner.errors import RunnerError
from orbit_runner.train.callbacks.base import Logs
from orbit_runner.train.callbacks.best_checkpoint import BestKeeper
from orbit_runner.train.evaluator import EXAMPLES
from orbit_runner.train.run import Run
from orbit_runner.utils.files import read_json_object


class GardenTrainer(orbit.AbstractTrainer, orbit.AbstractEvaluator):
    """Trainer and evaluator of a run, with the attributes of Model Garden's `Trainer`.

    Attributes:
        run: The run.
        config: The experiment, as it was given.
        checkpoint_exporter: What a subclass of the runner exports the best checkpoint with.
    """

    def __init__(self, run: Run, config: Any, checkpoint_exporter: Any = None) -> None:
        """Shows a run.

        Args:
            run: The run.
            config: The experiment, as it was given.
            checkpoint_exporter: Takes the place of the runner's best checkpoint where given.
        """
        self.run, self.config = run, config
        self.checkpoint_exporter = checkpoint_exporter
        if checkpoint_exporter is not None:
            run.best = _Exported(checkpoint_exporter, self)

    @property
    def model(self) -> Any:
        """The network."""
        return self.run.state.model

    @property
    def optimizer(self) -> Any:
        """What applies gradients; an average of the weights stands beside it, not around it."""
        return self.run.state.optimizer

    @property
    def global_step(self) -> tf.Variable:
        """The step, int64 scalar."""
        return self.run.state.global_step

    @property
    def task(self) -> Any:
        """What is learned."""
        return self.run.task

    @property
    def strategy(self) -> tf.distribute.Strategy:
        """Where it runs."""
        return self.run.strategy

    @functools.cached_property
    def checkpoint(self) -> tf.train.Checkpoint:
        """All that changes with a step."""
        return self.run.state.checkpoint()

    @property
    def train_loss(self) -> Any:
        """The mean training loss; None in modes that only evaluate."""
        return getattr(self.run.trainer, "_loss", None)

    @property
    def train_metrics(self) -> list[Any]:
        """The task's metrics of training."""
        return list(getattr(self.run.trainer, "_metrics", ()))

    @property
    def validation_loss(self) -> Any:
        """The mean loss of an evaluation; None in modes that only train."""
        return getattr(self.run.evaluator, "_loss", None)

    @property
    def validation_metrics(self) -> list[Any]:
        """The task's metrics of an evaluation."""
        return list(getattr(self.run.evaluator, "_metrics", ()))

    def initialize(self) -> None:
        """Lets the task load weights from elsewhere."""
        self.task.initialize(self.model)

    def train(self, num_steps: tf.Tensor) -> dict[str, Any]:
        """Runs some steps.

        Args:
            num_steps: int32 scalar.

        Returns:
            Loss, metrics and learning rate.
        """
        assert self.run.trainer is not None
        return self.run.trainer.train(num_steps)

    def evaluate(self, num_steps: tf.Tensor) -> dict[str, Any]:
        """Evaluates some batches, and keeps the best checkpoint: for controllers not made here.

        Args:
            num_steps: int32 scalar; -1 for all there are.

        Returns:
            Loss and metrics.
        """
        assert self.run.evaluator is not None
        logs = self.run.evaluator.evaluate(num_steps)
        if self.run.best is not None:
            self.run.best.on_evaluate(self.run, logs)
        return self.as_in_model_garden(logs)

    def as_in_model_garden(self, logs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns results under the names that Model Garden has for them, and no others.

        Args:
            logs: The result of an evaluation; {} where there was none.
        """
        found = _without_examples(logs)
        if not logs or self.run.best is None:
            return found
        metric = self.config.trainer.best_checkpoint_eval_metric
        return {**found, f"best_{metric}": self._best().get(metric, math.nan)}

    def _best(self) -> Mapping[str, Any]:
        if self.checkpoint_exporter is not None:
            return self.checkpoint_exporter.best_ckpt_logs
        folder = self.run.config.trainer.best_checkpoint_export_subdir
        info = self.run.model_dir / folder / "info.json"
        try:
            return read_json_object(info)
        except (OSError, ValueError):  # Removed or damaged while the run went on.
            return {}


def _without_examples(logs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_examples(value) if isinstance(value, Mapping) else value
        for name, value in logs.items()
        if name != EXAMPLES
    }


class _Exported(BestKeeper):
    """Hands the weights to an exporter after each evaluation, averaged where an average is kept."""

    def __init__(self, exporter: Any, trainer: GardenTrainer) -> None:
        self._exporter, self._trainer = exporter, trainer

    def on_evaluate(self, run: Run, logs: Logs) -> None:
        """Hands them over."""
        ema = run.state.ema
        with ema.applied_scope() if ema is not None else contextlib.nullcontext():
            self._exporter.maybe_export_checkpoint(self._trainer.checkpoint, dict(logs), run.step)


class GardenCheckpoints(tf.train.CheckpointManager):
    """The checkpoints of a run, with the methods of `tf.train.CheckpointManager`.

    It is one by name, for Orbit's controller asks for that; nothing of it is used.
    """

    def __init__(self, run: Run, checkpoint: tf.train.Checkpoint) -> None:
        """Shows the checkpoints of a run.

        Args:
            run: The run.
            checkpoint: What is saved.
        """
        self._run, self._shown = run, checkpoint
        assert isinstance(run.checkpoints, Checkpoints)  # A user's manager is not wrapped again.
        self._folder = run.checkpoints.folder
        self._saved_at = run.step

    @property
    def checkpoint(self) -> tf.train.Checkpoint:
        """What is saved."""
        return self._shown

    @property
    def checkpoint_interval(self) -> int:
        """Steps between checkpoints."""
        return self._run.plan.checkpoint_interval

    @property
    def directory(self) -> str:
        """Their folder."""
        return self._run.checkpoints.directory

    @property
    def checkpoints(self) -> list[str]:
        """Their paths, the oldest first."""
        return [str(self._folder.prefix(step)) for step in self._folder.committed()]

    @property
    def latest_checkpoint(self) -> str | None:
        """The path of the newest; None where there is none."""
        return self._run.checkpoints.newest()

    def save(
        self, checkpoint_number: Any = None, check_interval: bool = True, options: Any = None
    ) -> str | None:
        """Saves the state at the global step.

        Args:
            checkpoint_number: Not looked at: checkpoints are named after the global step.
            check_interval: Whether to save only where the interval has passed.
            options: Not looked at: `enable_async_checkpointing` said it.

        Returns:
            The path; None where nothing was saved.
        """
        step = self._run.step
        if check_interval and step - self._saved_at < self.checkpoint_interval:
            return None
        self._run.checkpoints.save()
        self._saved_at = step
        return str(self._folder.prefix(step))

    def restore_or_initialize(self) -> str | None:
        """Restores the newest that is whole, or hands a new model to the task.

        Returns:
            The path of the checkpoint; None where there was none.
        """
        self._run.restore_or_initialize()
        self._saved_at = self._run.step
        return self._run.restored

    def sync(self) -> None:
        """Waits until the last save is on the disk."""
        self._run.checkpoints.sync()


class ManagedCheckpoints:
    """A `tf.train.CheckpointManager` of a user's own, in the place of a run's checkpoints."""

    def __init__(self, run: Run, manager: Any, *, asynchronous: bool) -> None:
        """Takes a manager.

        Args:
            run: The run.
            manager: The manager, of the run's state.
            asynchronous: Whether saving runs beside training.
        """
        self._run, self._manager = run, manager
        # A manager of one's own restores its newest checkpoint, as a whole, or raises; it keeps no
        # record of it.
        self.fell_back, self.restored_partly = False, False
        self.restored: CheckpointRecord | None = None
        self._options = tf.train.CheckpointOptions(enable_async=asynchronous)
        self._saved: int | None = None

    @property
    def directory(self) -> str:
        """Its folder."""
        return str(self._manager.directory)

    def newest(self) -> str | None:
        """Returns the newest checkpoint; None if there is none."""
        return tf.train.latest_checkpoint(self.directory)

    def check(self, path: str) -> None:
        """Does nothing: no fingerprint is kept of what a manager of one's own writes.

        Args:
            path: The checkpoint.
        """

    def restore_or_initialize(self, task: Any) -> str | None:
        """Lets the manager restore, or initialize where it has nothing.

        Args:
            task: Not asked: the manager has a function of its own for a new model.
        """
        with self._run.strategy.scope():
            path: str | None = self._manager.restore_or_initialize()
        if path is None and self._run.state.ema is not None:
            self._run.state.ema.reset()
        self._saved = self._run.step if path is not None else None
        return path

    def restore(self, path: str) -> None:
        """Restores one checkpoint.

        Args:
            path: The checkpoint, without suffix.

        Raises:
            RunnerError: It cannot be read.
        """
        try:
            with self._run.strategy.scope():
                self._manager.checkpoint.restore(path)
        except tf.errors.OpError as error:
            raise RunnerError(f"the checkpoint {path} cannot be read: {error.message}") from error
        self._saved = self._run.step

    def restore_newest(self) -> str | None:
        """Restores the newest checkpoint; returns its path, None where there is none."""
        path = self.newest()
        if path is not None:
            self.restore(path)
        return path

    def raise_failure(self) -> None:
        """Does nothing: a manager of one's own raises its errors itself."""

    def save(self) -> None:
        """Saves the state as it is at the global step, once a step.

        Raises:
            Diverged: The weights are not finite.
        """
        step = self._run.step
        if step == self._saved:
            return
        found = non_finite_variables(self._run.state.model.trainable_variables)
        if found:
            raise non_finite_error(step, found)
        self._manager.save(checkpoint_number=step, check_interval=False, options=self._options)
        self._saved = step

    @contextlib.contextmanager
    def completed_saves_scope(self) -> Iterator[None]:
        """Has the last save on the disk at the end of a `with` block, an error included."""
        try:
            yield
        finally:
            self.sync()

    def sync(self) -> None:
        """Waits until the last save is on the disk."""
        self._manager.sync()
