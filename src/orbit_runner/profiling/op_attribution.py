"""Determines by the name of an op which part of a step it belongs to, such as a layer.

TensorFlow names an op after the scopes in which it was created. Keras has one for each layer, so
the name of an op of the forward pass contains `MODEL/LAYER/`. Ops of the backward pass begin with
`gradient_tape/` and continue with the name of the op that they differentiate.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any

from orbit_runner.profiling.calls import GET_NEXT, Op
from orbit_runner.profiling.trace_files import TraceDescription

INPUT, PIPELINE = "input", "input pipeline (tf.data)"
LOSS, OPTIMIZER, REDUCTION = "loss", "optimizer", "reduction over replicas"
COMPILED, OTHERS = "programs of XLA", "metrics and others"

_TAPE = "gradient_tape"
_BATCHES = "make_batches"  # The scope of what makes batches in a compiled program.
_NAMED = ("graph", "compiled")  # The sources of ops whose names have scopes.
# Parts of a name that TensorFlow adds when it inlines loops and functions, and for replicas.
_LOOP = re.compile(r"while(_\d+)?|body|cond|_\d+|(Stateful)?PartitionedCall(_\d+)?|replica_\d+")
_CALL = re.compile(r"PartitionedCall(_\d+)?")
_NUMBER = re.compile(r"_\d+$")
_UPDATES = ("ResourceApply", "ResourceSparseApply")
_REDUCTIONS = ("Collective", "Nccl")


@dataclasses.dataclass(frozen=True)
class StepPart:
    """The part of a step that an op belongs to.

    Attributes:
        part: The name of a layer, or one of the constants of this module.
        backward: Whether the op is one of the backward pass.
    """

    part: str
    backward: bool = False


class OpAttribution:
    """Attributes the ops of a trace."""

    def __init__(self, description: TraceDescription, ops: Iterable[Op], *, fetches: bool) -> None:
        """`fetches` is whether batches come from tf.data, and not from ops of the same graph."""
        named = [(op.source, op.name.split("/")) for op in ops if op.source in _NAMED]
        backward = [parts for source, parts in named if source == "graph" and _TAPE in parts]
        bare = [_strip_loops(parts) for _, parts in named if _TAPE in parts]
        self._model, self._fetches = description.model or _guess_model(bare), fetches
        self._layers = _layer_tree(description.layers)
        self._optimizers = {name.lower() for name in description.optimizers}
        self._loop = _common_prefix([parts[: parts.index(_TAPE)] for parts in backward])
        # What the tape differentiates outside the model is the loss.
        self._loss = {parts[1] for parts in bare if len(parts) > 2 and not self._layer(parts)}

    def attribute(self, op: Op) -> StepPart:
        """Returns the place of an op."""
        if op.source not in _NAMED:
            of_eager = INPUT if GET_NEXT in op.kind else OTHERS
            return StepPart({"pipeline": PIPELINE, "xla": COMPILED}.get(op.source, of_eager))
        if op.kind.startswith(_REDUCTIONS):
            return StepPart(REDUCTION)
        parts = op.name.split("/")
        if _BATCHES in parts or (op.source == "graph" and self._makes_batches(parts)):
            return StepPart(INPUT)
        parts = _strip_loops(parts)
        backward = _TAPE in parts
        if not backward and (self._is_update(parts) or parts[-1].startswith(_UPDATES)):
            return StepPart(OPTIMIZER)
        if layer := self._layer(parts):
            return StepPart(layer, backward)
        if parts[backward] in self._loss:
            return StepPart(LOSS, backward)
        return StepPart(OTHERS, backward)

    def _makes_batches(self, parts: Sequence[str]) -> bool:
        """Returns whether an op is outside the loop over steps, in a graph that makes batches."""
        if self._fetches or self._layer(_strip_loops(parts)):
            return False
        if self._loop:
            return list(parts[: len(self._loop)]) != self._loop
        return any(_CALL.fullmatch(part) for part in parts)

    def _is_update(self, parts: Sequence[str]) -> bool:
        return any(_NUMBER.sub("", part).lower() in self._optimizers for part in parts[:-1])

    def _layer(self, parts: Sequence[str]) -> str:
        """Returns the layer, the model for an op between its layers, or "" if it has neither."""
        scopes = [part for part in parts[:-1] if part != _TAPE]
        inside = next((n for n, part in enumerate(scopes) if _is_scope_of(part, self._model)), None)
        if inside is None:
            # The task calls layers without the model around them.
            known = scopes and _find_child(self._layers, scopes[0])
            return "/".join(_layer_path(self._layers, scopes)) if known else ""
        found = _layer_path(self._layers, scopes[inside + 1 :])
        if not self._layers:  # The trace is not from the runner.
            found = scopes[inside + 1 : inside + 2]
        return "/".join(found) or self._model


def _layer_tree(paths: Iterable[str]) -> dict[str, Any]:
    """Returns layers as nested dicts."""
    root: dict[str, Any] = {}
    for path in paths:
        node = root
        for name in path.split("/"):
            node = node.setdefault(name, {})
    return root


def _layer_path(layers: dict[str, Any], scopes: Sequence[str]) -> list[str]:
    """Returns the names of the layers among scopes, from the outside to the inside."""
    found = []
    for scope in scopes:
        if name := _find_child(layers, scope):
            layers = layers[name]
            found.append(name)
    return found


def _find_child(layers: dict[str, Any], scope: str) -> str:
    # TensorFlow appends a number to a name that is in use.
    bare = _NUMBER.sub("", scope)
    return scope if scope in layers else bare if bare in layers else ""


def _guess_model(backward: Iterable[Sequence[str]]) -> str:
    """Returns the outermost scope with the most backward ops, in a trace of another program."""
    found = collections.Counter(parts[1] for parts in backward if len(parts) > 3)
    return found.most_common(1)[0][0] if found else ""


def _is_scope_of(scope: str, name: str) -> bool:
    return bool(name) and (scope == name or _NUMBER.sub("", scope) == name)


def _strip_loops(parts: Sequence[str]) -> list[str]:
    """Returns a name without the parts that loops and functions add."""
    return [part for part in parts[:-1] if not _LOOP.fullmatch(part)] + list(parts[-1:])


def _common_prefix(names: Sequence[Sequence[str]]) -> list[str]:
    """Returns the longest common beginning."""
    if not names:
        return []
    shortest = min(names, key=len)
    count = next(
        (n for n, part in enumerate(shortest) if any(name[n] != part for name in names)),
        len(shortest),
    )
    return list(shortest[:count])
