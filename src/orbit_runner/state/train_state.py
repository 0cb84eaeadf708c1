"""The state of training, and the part of it that a checkpoint contains."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import tensorflow as tf
import tf_keras

from orbit_runner.state.ema import WeightAverage
from orbit_runner.state.replica_state import ReplicaState
from orbit_runner.state.trained_layers import TrainedLayers
from orbit_runner.tf_internals import optimizer_settings

if TYPE_CHECKING:
    from orbit_runner.state.learning_rates import Optimizer


@dataclasses.dataclass(frozen=True)
class TrainState:
    """Everything that changes with a step."""

    model: tf_keras.Model
    optimizer: Optimizer  # Wrapped in another optimizer if loss scaling is enabled.
    ema: WeightAverage | None  # None if the weights are not averaged.
    global_step: tf.Variable  # int64 scalar.
    recoveries: tf.Variable  # int64 scalar: the number of rollbacks after the run diverged.
    replica_state: ReplicaState
    # Names of the variables that were not finite when the model was built, such as masks of -inf.
    non_finite: tuple[str, ...] = ()
    # Which layers are trained at which step; None if the config freezes none.
    trained_layers: TrainedLayers | None = None
    # Digest of the task's assets, which do not change; "" if it has none.
    assets: str = ""

    def checkpoint(self) -> tf.train.Checkpoint:
        """Returns the checkpoint of the state."""
        items = {
            "global_step": self.global_step,
            "model": self.model,
            "optimizer": self.optimizer,
            "recoveries": self.recoveries,
            **getattr(self.model, "checkpoint_items", {}),
        }
        if self.ema is not None and not self.ema.is_in_optimizer:
            items["ema"] = self.ema
        return tf.train.Checkpoint(**items)

    def hyperparameters(self) -> list[tf.Variable]:
        """Returns the optimizer settings that are variables, such as a constant learning rate."""
        inner = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        settings = optimizer_settings(inner).values()
        return [value for value in settings if isinstance(value, tf.Variable)]

    def optimizer_variables(self) -> list[tf.Variable]:
        """Returns the variables of the optimizer, without those of loss scaling."""
        inner = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        return list(inner.variables() if callable(inner.variables) else inner.variables)

    @property
    def optimizer_kind(self) -> str:
        """The optimizer's class; legacy ones, which store slots differently, are marked."""
        inner = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        if kind := getattr(inner, "kind", ""):
            return str(kind)
        older = isinstance(inner, tf_keras.optimizers.legacy.Optimizer)
        return f"{type(inner).__name__}{' (older kind)' if older else ''}"
