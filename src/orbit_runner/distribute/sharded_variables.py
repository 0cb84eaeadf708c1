"""Variables that are cut over several parameter servers, seen as the whole ones that they are.

TensorFlow saves the pieces as one tensor, so checkpoints do not depend on how variables are cut.
Keras' lists hold the pieces; names and order have to be those of whole variables again, or the
weights of equal runs would not compare as equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

_Sharded = tf.__internal__.distribute.ShardedVariable


def is_variable(value: Any) -> bool:
    """Returns whether a value is a variable, whole or cut."""
    return isinstance(value, (tf.Variable, _Sharded))


def name_of(variable: Any) -> str:
    """Returns the name that a variable has where it is whole."""
    if isinstance(variable, _Sharded):
        return pieces(variable)[0].name.partition(":")[0].removesuffix("/part_0")
    return variable.name.partition(":")[0]


def pieces(variable: Any) -> list[tf.Variable]:
    """Returns the variables that a variable is cut into; itself where it is whole."""
    return list(variable.variables) if isinstance(variable, _Sharded) else [variable]


def whole(variables: Iterable[Any]) -> list[Any]:
    """Puts a variable in the place of its pieces.

    Args:
        variables: Variables, and pieces of variables in their order.

    Returns:
        The variables, each once, in the order in which they come first.
    """
    found: dict[int, Any] = {}
    for variable in variables:
        container = getattr(variable, "_sharded_container", None)
        one = variable if container is None else container()
        found.setdefault(id(one), one)
    return list(found.values())


def name_shards(root: tf.Module) -> None:
    """Gives cut variables their names, for checkpoints; TensorFlow calls all `ShardedVariable`.

    Args:
        root: What is saved.
    """
    for found in tf.train.TrackableView(root).descendants():
        if isinstance(found, _Sharded):
            found._name = name_of(found)


def hold_slots(optimizer: Any) -> None:
    """Has an optimizer of the older kind give the same object for a cut slot each time.

    It makes a new one for each call, and restoring a checkpoint takes it for another variable.

    Args:
        optimizer: Any optimizer, its slots made.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if not hasattr(inner, "get_slot"):
        return
    get, made = inner.get_slot, dict[tuple[int, str], Any]()

    def get_slot(variable: Any, name: str) -> Any:
        if not isinstance(variable, _Sharded):
            return get(variable, name)
        key = id(variable), name
        if key not in made:
            made[key] = get(variable, name)
        return made[key]

    inner.get_slot = get_slot
