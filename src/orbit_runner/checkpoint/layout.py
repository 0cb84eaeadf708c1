"""Where a checkpoint has the optimizer and the average of the weights.

Model Garden's average is kept by an optimizer around the optimizer; here it stands beside. A
checkpoint shows it as it is there, so that either runner goes on from what the other wrote.
TensorFlow saves a variable in one place only, so it is not beside the optimizer as well, as it was
in checkpoints of this runner's first versions; those are read all the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tf_keras

from orbit_runner.checkpoint.fingerprint import CheckpointContent
from orbit_runner.state.averaging_optimizer import INNER, OWN


class OptimizerKind(NamedTuple):
    """Which optimizer it is.

    Attributes:
        name: Its name; "" where nothing tells.
        older: Whether it is of Keras' older kind, which keeps its slots in another way.
    """

    name: str
    older: bool

    def __str__(self) -> str:
        name = self.name or "an optimizer"
        return f"{name} (older kind)" if self.older else name


def has_inner(content: CheckpointContent) -> bool:
    """Returns whether the optimizer of a checkpoint is one around another, for an average.

    Args:
        content: The checkpoint.
    """
    return INNER in _children(content, _children(content, 0).get("optimizer"))


def is_model_gardens(content: CheckpointContent) -> bool:
    """Returns whether a checkpoint has none of what only this runner keeps.

    Args:
        content: The checkpoint.
    """
    return not any(name in _children(content, 0) for name in OWN)


def has_weights_only(content: CheckpointContent) -> bool:
    """Returns whether a checkpoint holds a model, and neither a step nor an optimizer.

    Args:
        content: The checkpoint.
    """
    parts = _children(content, 0)
    return "model" in parts and not {"global_step", "optimizer"} & parts.keys()


def kind_of(optimizer: Any) -> OptimizerKind:
    """Returns the kind of an optimizer.

    Args:
        optimizer: The optimizer, within loss scaling or by itself.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    older = isinstance(inner, tf_keras.optimizers.legacy.Optimizer)
    return OptimizerKind(inner._name if older else inner.name, older)


def kind_in(content: CheckpointContent) -> OptimizerKind | None:
    """Tells which optimizer made one of Model Garden's checkpoints, from the names of its parts.

    Args:
        content: The checkpoint.

    Returns:
        The kind; None where there is no optimizer.
    """
    node = _children(content, 0).get("optimizer")
    node = _children(content, node).get(INNER, node)
    parts = _children(content, node)
    if "iter" in parts:
        scope = _name(content, parts["iter"]).split("/")[:-1]
        return OptimizerKind(scope[-1] if scope else "", older=True)
    if "_iterations" not in parts:
        return None
    slots = [_name(content, at) for at in _children(content, parts.get("_variables")).values()]
    scopes = {name.split("/")[0] for name in slots if name and name != "iteration"}
    return OptimizerKind(scopes.pop() if len(scopes) == 1 else "", older=False)


def _children(content: CheckpointContent, node_id: int | None) -> dict[str, int]:
    if node_id is None:
        return {}
    return {child.local_name: child.node_id for child in content.graph.nodes[node_id].children}


def _name(content: CheckpointContent, node_id: int) -> str:
    attributes = content.graph.nodes[node_id].attributes
    return attributes[0].full_name if attributes else ""
