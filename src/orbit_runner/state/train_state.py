"""What is trained, and what a checkpoint holds of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf
import tf_keras

from orbit_runner.state.averaging_optimizer import OWN, AveragingOptimizer
from orbit_runner.state.ema import WeightAverage
from orbit_runner.state.replica_state import ReplicaState


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
