"""What is trained, and what a checkpoint holds of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import orbit
import tensorflow as tf
import tf_keras

from orbit_runner.config.experiment import ExperimentConfig
from orbit_runner.runtime.numerics import seed_everything
from orbit_runner.training.checkpoints.layout import OWN, AveragingOptimizer
from orbit_runner.training.ema import WeightAverage
from orbit_runner.training.explanations import model_error_scope
from orbit_runner.training.finite_check import non_finite_variables
from orbit_runner.training.lazy_models import complete
from orbit_runner.training.replica_state import ReplicaState
from orbit_runner.training.shards import whole
from orbit_runner.training.task_optimizer import optimizer_of


@dataclasses.dataclass(frozen=True)
class TrainState:
    """Everything that changes with a step.

    Attributes:
        model: The network.
        optimizer: What applies gradients, wrapped for loss scaling where that is on.
        ema: The average of the weights, where it is on.
        global_step: int64 scalar variable.
        recoveries: int64 scalar variable: how often training went back after diverging.
        early_stopping: float64 [3] variable: best value, evaluations since, step of the last one.
        best: float64 [2] variable: the best result so far and its step; NaN where there is none.
        replica_state: The variables of which each replica has its own.
        non_finite: The names of variables that the model was built with and that are not finite,
            such as masks of -inf.
    """

    model: tf_keras.Model
    optimizer: Any
    ema: WeightAverage | None
    global_step: tf.Variable
    recoveries: tf.Variable
    early_stopping: tf.Variable
    best: tf.Variable
    replica_state: ReplicaState
    non_finite: tuple[str, ...] = ()

    def items(self, *, around: bool | None = None) -> dict[str, Any]:
        """Returns what a checkpoint holds, under Model Garden's names for what that has too.

        Args:
            around: Whether the average is kept by an optimizer around the optimizer, and not beside
                it; as this run saves it where None.
        """
        if around is None:
            around = self.ema is not None
        optimizer = AveragingOptimizer(self.optimizer, self.ema) if around else self.optimizer
        items = {
            "global_step": self.global_step,
            "model": self.model,
            "optimizer": optimizer,
            **{name: getattr(self, name) for name in OWN},
            **getattr(self.model, "checkpoint_items", {}),
        }
        if self.ema is not None and not around:
            items["ema"] = self.ema
        return items

    def checkpoint(self) -> tf.train.Checkpoint:
        """Returns the checkpoint of it all."""
        return tf.train.Checkpoint(**self.items())

    def hyperparameters(self) -> list[tf.Variable]:
        """Returns the optimizer's settings that it keeps in variables, such as a constant rate."""
        inner = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        kept = getattr(inner, "_hyper", {"learning_rate": getattr(inner, "_learning_rate", None)})
        return [value for value in kept.values() if isinstance(value, tf.Variable)]

    @property
    def optimizer_kind(self) -> str:
        """The kind of the optimizer: Keras' older ones keep their slots in another way."""
        inner = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        older = isinstance(inner, tf_keras.optimizers.legacy.Optimizer)
        return f"{type(inner).__name__}{' (older kind)' if older else ''}"


def build_state(
    config: ExperimentConfig, task: Any, strategy: tf.distribute.Strategy
) -> TrainState:
    """Builds model and optimizer in the strategy's scope, from the seed.

    Args:
        config: The experiment.
        task: Its task.
        strategy: Where it runs.

    Returns:
        The state at step 0.
    """
    seed_everything(config.runtime.seed, keeps=config.for_task is not config)
    with strategy.scope(), model_error_scope(config):
        model = task.build_model()
        optimizer, average = optimizer_of(config, task, model)
        complete(config, task, model, optimizer, strategy)
        _build_slots(optimizer, model.trainable_variables)
        ema = WeightAverage(average, model, strategy) if average is not None else None
        return TrainState(
            model=model,
            optimizer=optimizer,
            ema=ema,
            global_step=orbit.utils.create_global_step(),
            recoveries=_host_variable(0, tf.int64, "recoveries"),
            early_stopping=_host_variable([float("nan"), 0.0, -1.0], tf.float64, "early_stopping"),
            best=_host_variable([float("nan"), -1.0], tf.float64, "best"),
            replica_state=ReplicaState(model, strategy),
            non_finite=tuple(one.name for one in non_finite_variables(_fixed(model))),
        )


def _fixed(model: tf_keras.Model) -> list[tf.Variable]:
    """Returns the variables that are not trainable and that a worker can read alone."""
    return [
        variable
        for variable in whole(model.non_trainable_variables)
        if isinstance(variable, tf.Variable)
        and variable.synchronization != tf.VariableSynchronization.ON_READ
    ]


def _host_variable(value: Any, dtype: tf.DType, name: str) -> tf.Variable:
    return tf.Variable(
        value,
        dtype=dtype,
        trainable=False,
        name=name,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )


def _build_slots(optimizer: Any, variables: list[tf.Variable]) -> None:
    # Slots that are made at the first step would be missing when a checkpoint is restored.
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if hasattr(inner, "build"):
        inner.build(variables)
    else:
        inner._create_all_weights(variables)
