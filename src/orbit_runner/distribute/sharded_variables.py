"""Variables that are sharded over several parameter servers, treated as whole variables.

TensorFlow saves the shards as one tensor, so checkpoints do not depend on the sharding. Keras'
lists contain the shards. Their names and order have to be those of whole variables again, or the
weights of equal runs would not compare as equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import tensorflow as tf

from orbit_runner.tf_internals import ShardedVariable, container_of_shard, name_sharded_variable

if TYPE_CHECKING:
    import tf_keras

    # A variable, sharded or not.
    Variable: TypeAlias = tf.Variable | ShardedVariable


def is_variable(value: object) -> bool:
    """Returns whether a value is a variable, sharded or not."""
    return isinstance(value, (tf.Variable, ShardedVariable))


def name_of(variable: Variable) -> str:
    """Returns the name that a variable has if it is not sharded."""
    if isinstance(variable, ShardedVariable):
        return shards_of(variable)[0].name.partition(":")[0].removesuffix("/part_0")
    return variable.name.partition(":")[0]


def shards_of(variable: Variable) -> list[tf.Variable]:
    """Returns the shards of a variable, or only the variable itself if it is not sharded."""
    return list(variable.variables) if isinstance(variable, ShardedVariable) else [variable]


def merge_shards(variables: Iterable[Variable]) -> list[Variable]:
    """Returns variables with all shards replaced by the variable that they belong to.

    Each variable is returned once, in the order of first appearance.
    """
    merged: dict[int, Variable] = {}
    for variable in variables:
        container = container_of_shard(variable)
        whole = variable if container is None else container
        merged.setdefault(id(whole), whole)
    return list(merged.values())


def name_shards(root: tf.Module) -> None:
    """Names the sharded variables of `root`, for checkpoints.

    TensorFlow gives all of them the name `ShardedVariable`.
    """
    for trackable in tf.train.TrackableView(root).descendants():
        if isinstance(trackable, ShardedVariable):
            name_sharded_variable(trackable, name_of(trackable))


def cache_sharded_slots(
    optimizer: tf_keras.optimizers.Optimizer | tf_keras.optimizers.legacy.Optimizer,
) -> None:
    """Makes a legacy optimizer return the same object for a sharded slot variable each time.

    Otherwise it creates a new object for each call, which a checkpoint restores as another
    variable. The slot variables must already exist.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if not hasattr(inner, "get_slot"):
        return
    get_inner_slot = inner.get_slot
    slots = dict[tuple[int, str], Any]()

    def get_slot(variable: Variable, name: str) -> Variable:
        if not isinstance(variable, ShardedVariable):
            return get_inner_slot(variable, name)
        key = id(variable), name
        if key not in slots:
            slots[key] = get_inner_slot(variable, name)
        return slots[key]

    inner.get_slot = get_slot
