"""What a step of training computes on a replica, and the averages that its records contain."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.runtime import LOGICAL_REPLICAS
from orbit_runner.determinism.scopes import keyed_draws_scope
from orbit_runner.errors import SettingError
from orbit_runner.state.train_state import TrainState
from orbit_runner.tasks.metrics import Ratio, RunningMean
from orbit_runner.train.evaluator import (
    all_metrics,
    as_scalar,
    reset_metric,
    value_of,
)
from orbit_runner.train.gradients import StepFn, compiles_whole_steps, split_step
from orbit_runner.utils.autograph import convert

if TYPE_CHECKING:
    from orbit_runner.state.learning_rates import AppliesGradients
    from orbit_runner.train.loops.loop_pieces import Results
    from orbit_runner.utils.types import Tensors


_LOSS = "training_loss"


class StepMetrics(tf.Module):
    """The averages of the loss and of the metrics since a record began.

    If several tasks are trained, `tasks` has the metrics of each. They are in a record, by the name
    of the task, if the task was trained since the record began.
    """

    def __init__(
        self,
        loss_key: str,  # of the loss in the logs of a step
        metrics: Sequence[Any] = (),
        tasks: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        super().__init__()
        self._loss_key = loss_key
        self.loss = RunningMean(_LOSS)
        self.own = list(metrics)
        self.tasks = {name: list(parts) for name, parts in (tasks or {}).items()}
        self._task_losses = {name: RunningMean(_LOSS) for name in self.tasks}

    def record(self, logs: Mapping[str, tf.Tensor]) -> None:
        """Adds the losses of a step, on a replica. The task updates its metrics itself."""
        self.loss.update_state(as_scalar(logs[self._loss_key]))
        for name, loss in self._task_losses.items():
            if name in logs:
                loss.update_state(as_scalar(logs[name]))

    def all(self) -> list[Any]:
        """Returns the metrics, first the loss."""
        return [self.loss, *self.own, *(metric for name in self.tasks for metric in self._of(name))]

    def _of(self, task: str) -> list[Any]:
        return [self._task_losses[task], *self.tasks[task]]

    def logs(self) -> Results:
        """Returns the averages by name."""
        logs = {metric.name: value_of(metric) for metric in (self.loss, *self.own)}
        for name, loss in self._task_losses.items():
            if loss.weight() > 0:
                logs[name] = {metric.name: value_of(metric) for metric in self._of(name)}
        return logs

    def reset(self) -> None:
        """Begins new averages."""
        for metric in self.all():
            reset_metric(metric)

    def can_read_in_graph(self) -> bool:
        """Returns whether a graph can read all averages, which it does without side effects.

        Only the host knows which of several tasks were trained.
        """
        return not self.tasks and all(
            type(metric).result is Ratio.result or getattr(metric, "reads_in_graph", False)
            for metric in self.all()
        )

    def replica_variables(self, strategy: tf.distribute.Strategy) -> list[tuple[tf.Variable, ...]]:
        """Returns the variables of the metrics, each on all local replicas."""
        return [
            strategy.experimental_local_results(variable)
            for metric in self.all()
            for variable in getattr(metric, "all_variables", getattr(metric, "variables", ()))
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainStep:
    """The step of a trainer.

    Attributes:
        build: Returns a function of the batch of a replica, which trains the layers that are
            trainable now with an optimizer. It returns the logs.
        metrics: The metrics that this function updates.
        owner: The object whose code it calls.
        repeats: How often the step runs the ops in its graph; None if that is unknown.
    """

    build: Callable[[AppliesGradients], StepFn]
    metrics: StepMetrics
    owner: object
    repeats: int | None = 1


def build_task_step(
    config: ExperimentConfig, task: Any, state: TrainState, strategy: tf.distribute.Strategy
) -> TrainStep:
    """Returns the step of a task, split if XLA or accumulation need its gradients.

    Raises SettingError if the task does not support that.
    """
    _require_gradients(config, task, strategy)
    metrics = StepMetrics(task.loss, all_metrics(task, state.model, training=True))
    pieces = config.trainer.gradient_accumulation_steps
    is_whole = pieces == 1 and not config.uses_xla

    def build(optimizer: AppliesGradients) -> StepFn:
        train_step = task_train_step(task, state, metrics, optimizer)
        if is_whole or getattr(task, "applies_gradients_itself", False):
            return train_step
        return split_step(
            convert(train_step, task),
            optimizer,
            pieces=pieces,
            jit_compile=config.uses_xla,
            loss=task.loss,
        )

    return TrainStep(build=build, metrics=metrics, owner=task)


def task_train_step(
    task: Any, state: TrainState, metrics: StepMetrics, optimizer: AppliesGradients
) -> Callable[..., dict[str, tf.Tensor]]:
    """Returns the training step of a task, a function of a batch and, if given, an optimizer."""

    def train_step(
        inputs: Tensors, optimizer: AppliesGradients = optimizer
    ) -> dict[str, tf.Tensor]:
        return task.train_step(inputs, model=state.model, optimizer=optimizer, metrics=metrics.own)

    return train_step


def run_on_replica(step: TrainStep, state: TrainState, seed: int) -> TrainStep:
    """Returns a step that each replica runs on its own batch, with its own random draws."""
    metrics = step.metrics

    def build(optimizer: AppliesGradients) -> StepFn:
        run = step.build(optimizer)

        def replica_step(inputs: Tensors) -> dict[str, tf.Tensor]:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            with keyed_draws_scope(seed, state.global_step, replica):
                logs = run(inputs)
            layers = state.trained_layers
            frozen = layers.frozen if layers is not None else ()
            state.replica_state.average_across_replicas(frozen)
            metrics.record(logs)
            return logs

        return replica_step

    return dataclasses.replace(step, build=build)


def _require_gradients(
    config: ExperimentConfig, task: Any, strategy: tf.distribute.Strategy
) -> None:
    """Raises SettingError if settings need the gradients of a step that applies them itself."""
    trainer = config.trainer
    problems = {
        "trainer.gradient_accumulation_steps": trainer.gradient_accumulation_steps > 1,
        LOGICAL_REPLICAS: bool(config.runtime.logical_replicas),
        "runtime.enable_xla": config.uses_xla and not compiles_whole_steps(config, strategy),
    }
    for path, is_set in problems.items():
        if is_set and getattr(task, "applies_gradients_itself", False):
            raise SettingError(
                path,
                "is not supported for a model with a train_step of its own, which applies its "
                "gradients itself\nremove it",
                code="not-supported",
            )
