"""Evaluates a checkpoint of a trained run, apart from the run and its records."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.checkpoint.latest_checkpoint import CheckpointLocation
from orbit_runner.config.schedule_length import follow_run
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.distribute.process_group import Workers
from orbit_runner.errors import SettingError
from orbit_runner.serving.loader import restored_state
from orbit_runner.state.train_state import TrainState
from orbit_runner.storage.staging import localize
from orbit_runner.tasks.adapter import TaskAdapter, adapt
from orbit_runner.train.divergence import warn_of_evaluation
from orbit_runner.train.engine import EngineBuilder
from orbit_runner.utils.log import phase
from orbit_runner.utils.metrics import scalars

if TYPE_CHECKING:
    import tf_keras

    from orbit_runner.train.evaluator import Evaluator

_SPEED = "steps_per_second"


@dataclasses.dataclass(frozen=True)
class CheckpointEvaluation:
    """A checkpoint of a run, restored to be evaluated as the run itself evaluates.

    The batches, the strategy and the numerics are those of the config, so that the results of a
    checkpoint are equal to those that the run recorded for it.
    """

    config: ExperimentConfig  # with the paths that this machine uses
    adapter: TaskAdapter
    strategy: tf.distribute.Strategy
    state: TrainState  # without the average if the plain weights are evaluated
    run: Path

    @classmethod
    def restore(
        cls,
        config: ExperimentConfig,
        task: tf.Module,
        strategy: tf.distribute.Strategy,
        run: Path,
        choice: CheckpointLocation,
        weights: str,
    ) -> CheckpointEvaluation:
        """Builds the model of a run and restores a checkpoint. `weights` is `average` or `plain`.

        Raises `RunnerError` if the checkpoint does not fit.
        """
        # The length of a schedule does not matter, because nothing is trained.
        config = localize(follow_run(config, 0, 0))
        adapter = adapt(task, config.for_task.task)
        state = restored_state(config, adapter, strategy, choice, weights)
        return cls(config, adapter, strategy, state, run)

    def evaluate(self) -> dict[str, float]:
        """Returns the metrics by name. Warns if some are NaN or infinite."""
        steps = self.validation_steps
        if not steps:
            raise SettingError(
                "task.validation_data", "contains no whole batch to evaluate", code="empty-data"
            )
        phase(f"evaluating the weights of step {self.step}")
        with self.strategy.scope():
            logs = scalars(self.evaluator.evaluate(tf.constant(steps, tf.int32)))
            warn_of_evaluation(self.step, logs)
        return {name: value for name, value in logs.items() if name != _SPEED}

    def fingerprint(self) -> str:
        """Returns the fingerprint of the weights that are evaluated."""
        ema = self.state.ema
        with ema.applied_scope() if ema is not None else contextlib.nullcontext():
            return weights_fingerprint(self.state.model)

    @functools.cached_property
    def evaluator(self) -> Evaluator:
        """The evaluator, as a run builds it."""
        builder = EngineBuilder(self.config, self.adapter, self.strategy, self.state, str(self.run))
        with self.strategy.scope():
            return builder.build_evaluator(self.validation_steps)

    @property
    def model(self) -> tf_keras.Model:
        """The model."""
        return self.state.model

    @property
    def workers(self) -> Workers:
        """The processes that evaluate: this one."""
        return Workers(self.strategy)

    @property
    def step(self) -> int:
        """The step of the weights."""
        return int(self.state.global_step.numpy())

    @property
    def validation_steps(self) -> int:
        """The number of batches; -1 for all if their number is not known."""
        configured = self.config.trainer.validation_steps
        return self.adapter.validation_steps(self.section("validation_data"), configured)

    def section(self, name: str) -> Any:
        """Returns a section of the task's config, or None if it has none."""
        return getattr(self.config.for_task.task, name, None)
