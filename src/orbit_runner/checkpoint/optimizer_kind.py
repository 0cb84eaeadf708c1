"""The layout of the optimizer and of the weight average in a checkpoint.

In Model Garden, an optimizer that wraps the actual optimizer keeps the average; in this runner, the
average is separate. Checkpoints use Model Garden's layout, so that either runner can resume from
the other's. TensorFlow saves a variable only once, so the average is not saved next to the
optimizer as well. The first versions of this runner saved it there, and such checkpoints can still
be read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from orbit_runner.checkpoint.fingerprint import CheckpointContent
from orbit_runner.state.averaging_optimizer import INNER_OPTIMIZER, OWN_ITEMS
from orbit_runner.tf_internals import is_legacy_optimizer, optimizer_name


class OptimizerKind(NamedTuple):
    """The kind of an optimizer."""

    name: str  # "" if unknown.
    is_legacy: bool  # Whether it is a Keras legacy optimizer, which stores its slots differently.

    def __str__(self) -> str:
        name = self.name or "an optimizer"
        return f"{name} (older kind)" if self.is_legacy else name


def has_inner_optimizer(content: CheckpointContent) -> bool:
    """Returns whether a checkpoint's optimizer wraps another one to average the weights."""
    return INNER_OPTIMIZER in _children(content, _children(content, 0).get("optimizer"))


def is_model_gardens(content: CheckpointContent) -> bool:
    """Returns whether a checkpoint lacks the state that only this runner saves."""
    return not any(name in _children(content, 0) for name in OWN_ITEMS)


def has_weights_only(content: CheckpointContent) -> bool:
    """Returns whether a checkpoint holds a model, but neither a step nor an optimizer."""
    parts = _children(content, 0)
    return "model" in parts and not {"global_step", "optimizer"} & parts.keys()


def kind_of(optimizer: Any) -> OptimizerKind:
    """Returns the kind of an optimizer, which may be wrapped for loss scaling."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return OptimizerKind(optimizer_name(inner), is_legacy_optimizer(inner))


def saved_optimizer_kind(content: CheckpointContent) -> OptimizerKind | None:
    """Returns the kind of optimizer in one of Model Garden's checkpoints, or None if it has none.

    Infers the kind from the names of the optimizer's variables.
    """
    node = _children(content, 0).get("optimizer")
    node = _children(content, node).get(INNER_OPTIMIZER, node)
    parts = _children(content, node)
    if "iter" in parts:
        scope = _variable_name(content, parts["iter"]).split("/")[:-1]
        return OptimizerKind(scope[-1] if scope else "", is_legacy=True)
    if "_iterations" not in parts:
        return None
    slots = [
        _variable_name(content, at) for at in _children(content, parts.get("_variables")).values()
    ]
    scopes = {name.split("/")[0] for name in slots if name and name != "iteration"}
    return OptimizerKind(scopes.pop() if len(scopes) == 1 else "", is_legacy=False)


def _children(content: CheckpointContent, node_id: int | None) -> dict[str, int]:
    if node_id is None:
        return {}
    return {child.local_name: child.node_id for child in content.graph.nodes[node_id].children}


def _variable_name(content: CheckpointContent, node_id: int) -> str:
    attributes = content.graph.nodes[node_id].attributes
    return attributes[0].full_name if attributes else ""
