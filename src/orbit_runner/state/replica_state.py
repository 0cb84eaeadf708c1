"""Variables that have a value per replica: all replicas get the same value after each step.

The moving averages of batch normalization are such variables. TensorFlow averages them when they
are saved, but each replica continues with its own value. A resumed run would continue with the
average, and so differ from a run that was never stopped. Because the values are averaged after each
step, and not only when they are saved, the weights do not depend on the steps at which checkpoints
are saved.
"""

from __future__ import annotations

from collections.abc import Collection

import tensorflow as tf

from orbit_runner.tf_internals import read_first_replica
from orbit_runner.utils.variables import tracked_variables

_AVERAGED = (tf.VariableAggregation.MEAN, tf.VariableAggregation.ONLY_FIRST_REPLICA)


class ReplicaState:
    """The variables of a model whose values would otherwise differ between replicas.

    The model must have been built in the strategy's scope.
    """

    def __init__(self, model: tf.Module, strategy: tf.distribute.Strategy) -> None:
        self._groups: dict[tf.DType, list[tf.Variable]] = {}
        if strategy.num_replicas_in_sync == 1:
            return
        for variable in replica_local_variables(model):
            if not isinstance(variable, tf.distribute.DistributedValues):
                continue  # The strategy keeps one value, and combines the updates of all replicas.
            self._groups.setdefault(variable.dtype, []).append(variable)
            # From now on, all values are equal. Read and save the first, because the mean of
            # three equal numbers can differ from them.
            read_first_replica(variable)

    @tf.autograph.experimental.do_not_convert
    def average_across_replicas(self, unchanged: Collection[int] = ()) -> None:
        """Sets all replicas to the mean of their values. Must be called in a replica context.

        Variables whose `id` is in `unchanged` do not change in a step, so they are left out: the
        mean of equal values can differ from them.
        """
        for group in self._groups.values():
            variables = [variable for variable in group if id(variable) not in unchanged]
            if not variables:
                continue
            context = tf.distribute.get_replica_context()
            # One reduction for all variables, because each waits for the slowest replica.
            flat = tf.concat([tf.reshape(variable, [-1]) for variable in variables], axis=0)
            mean = context.all_reduce(tf.distribute.ReduceOp.MEAN, flat)
            sizes = [variable.shape.num_elements() for variable in variables]
            for variable, part in zip(variables, tf.split(mean, sizes), strict=True):
                variable.assign(tf.reshape(part, variable.shape))


def has_combined_variables(checkpoint: tf.train.Checkpoint) -> bool:
    """Returns whether a checkpoint has variables whose value combines those of all replicas.

    The model in the checkpoint must be built.
    """
    return any(
        # On one device, such a variable is a plain one, which has nothing to combine.
        isinstance(variable, tf.distribute.DistributedValues)
        and variable.synchronization == tf.VariableSynchronization.ON_READ
        and variable.aggregation != tf.VariableAggregation.ONLY_FIRST_REPLICA
        for variable in tracked_variables(checkpoint)
    )


def replica_local_variables(model: tf.Module, unchanged: Collection[int] = ()) -> list[tf.Variable]:
    """Returns the variables of a model that replicas update differently, each with its own batch.

    Those whose `id` is in `unchanged` are left out.
    """
    return [
        variable
        for variable in tracked_variables(model)
        if variable.synchronization == tf.VariableSynchronization.ON_READ
        and variable.aggregation in _AVERAGED
        and variable.dtype.is_floating
        and id(variable) not in unchanged
    ]
