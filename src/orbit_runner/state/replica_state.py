"""Variables of which each replica has its own: one value for all after each step.

The moving averages of batch norm are such variables. TensorFlow averages them when they are saved,
and lets each replica go on with its own; a resumed run would go on with the average, and part from
the run that was never stopped. A common value after each step, and not only when one is saved,
makes the weights independent of the steps at which checkpoints are made.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_AVERAGED = (tf.VariableAggregation.MEAN, tf.VariableAggregation.ONLY_FIRST_REPLICA)


class ReplicaState:
    """The variables of a model that replicas would let drift apart."""

    def __init__(self, model: tf.Module, strategy: tf.distribute.Strategy) -> None:
        """Finds them.

        Args:
            model: The model, built in the strategy's scope.
            strategy: The strategy.
        """
        self._groups: dict[tf.DType, list[tf.Variable]] = {}
        if strategy.num_replicas_in_sync == 1:
            return
        for variable in tf.train.TrackableView(model).descendants():
            if _drifts(variable):
                self._groups.setdefault(variable.dtype, []).append(variable)
                # All are equal from here on, and the mean of three equal numbers need not be that
                # number: what is read, and saved, is the first one.
                variable._aggregation = tf.VariableAggregation.ONLY_FIRST_REPLICA

    @tf.autograph.experimental.do_not_convert
    def bring_together(self) -> None:
        """Gives all replicas the mean of their values; in the context of a replica."""
        for variables in self._groups.values():
            context = tf.distribute.get_replica_context()
            # One reduction for all: each costs a wait for the slowest replica.
            flat = tf.concat([tf.reshape(variable, [-1]) for variable in variables], axis=0)
            mean = context.all_reduce(tf.distribute.ReduceOp.MEAN, flat)
            sizes = [variable.shape.num_elements() for variable in variables]
            for variable, part in zip(variables, tf.split(mean, sizes), strict=True):
                variable.assign(tf.reshape(part, variable.shape))


def is_joint(checkpoint: tf.train.Checkpoint) -> bool:
    """Returns whether a checkpoint has variables whose value is made of those of all replicas.

    Args:
        checkpoint: Of a run whose model is built.
    """
    return any(
        isinstance(found, tf.Variable)
        and found.synchronization == tf.VariableSynchronization.ON_READ
        and found.aggregation != tf.VariableAggregation.ONLY_FIRST_REPLICA
        for found in tf.train.TrackableView(checkpoint).descendants()
    )


def _drifts(variable: Any) -> bool:
    return (
        isinstance(variable, tf.Variable)
        and variable.synchronization == tf.VariableSynchronization.ON_READ
        and variable.aggregation in _AVERAGED
        and variable.dtype.is_floating
    )
