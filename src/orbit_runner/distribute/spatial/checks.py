"""Checks whether a model can be partitioned, before anything runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from orbit_runner.distribute.spatial.grid import PartitionError
from orbit_runner.distribute.spatial.rules import rule_of
from orbit_runner.distribute.spatial.walk import Functional, nodes

_DIMS = 4
_MAX_SHOWN = 8


def check_dims(dims: Sequence[int], groups: Sequence[Sequence[str]]) -> None:
    """Raises `PartitionError` if the dims are invalid or do not match the number of devices.

    `dims` is the number of parts along batch, height, width and channels. `groups` contains the
    devices of each replica.
    """
    if len(dims) != _DIMS or any(count < 1 for count in dims):
        raise PartitionError(
            f"got {list(dims)}; allowed: four positive numbers, the parts along batch, height, "
            "width and channels, such as [1, 2, 2, 1]"
        )
    if dims[3] != 1:
        raise PartitionError(
            f"got {list(dims)}, {dims[3]} parts along the channels; CPUs and GPUs support only 1"
        )
    sizes = {len(group) for group in groups}
    if sizes != {math.prod(dims)}:
        replica_sizes = ", ".join(str(size) for size in sorted(sizes)) or "none"
        raise PartitionError(
            f"{list(dims)} requires {math.prod(dims)} devices per replica, one for each part; "
            f"a replica has {replica_sizes}"
        )


def check_model(model: tf_keras.Model, dims: Sequence[int]) -> None:
    """Raises `PartitionError` with the layers and reasons if a model cannot run on parts.

    `dims` is the number of parts along batch, height, width and channels.
    """
    if not isinstance(model, Functional):
        raise PartitionError(
            f"{model.name} is a {type(model).__name__}; "
            "only functional models, created from inputs and outputs, can be partitioned"
        )
    if not any(x.shape.rank == _DIMS for x in model.inputs):
        shapes = ", ".join(str(x.shape) for x in model.inputs)
        raise PartitionError(f"no input of {model.name} ({shapes}) is a batch of images")
    partitioned = {str(id(x)) for x in model.inputs if x.shape.rank == _DIMS}
    problems = [_size_problem(x.name, x, dims) for x in model.inputs if str(id(x)) in partitioned]
    all_problems = [problem for problem in problems if problem] + list(
        _find_problems(model, partitioned, dims, "")
    )
    if all_problems:
        more = (
            [f"and {len(all_problems) - _MAX_SHOWN} more"] if len(all_problems) > _MAX_SHOWN else []
        )
        raise PartitionError(
            "\n".join([f"{model.name} cannot be partitioned:", *all_problems[:_MAX_SHOWN], *more])
        )


def _find_problems(
    model: Functional, partitioned: set[str], dims: Sequence[int], path: str
) -> Iterator[str]:
    """Yields why a model cannot be partitioned; adds tensors that are in parts to `partitioned`."""
    for node in nodes(model):
        if not partitioned.intersection(node.flat_input_ids):
            continue
        layer = node.layer
        rule = rule_of(node.layer)
        name = f"{path}{layer.name}"
        inner = _inner_model(layer)
        if inner is not None:
            yield from _find_inner_problems(node, inner, partitioned, dims, f"{name}/")
            continue
        problem = _refusal(layer)
        if problem:
            yield f"layer {name} ({type(layer).__name__}) {problem}"
        if rule is not None and rule.whole:
            continue
        partitioned.update(node.flat_output_ids)
        outputs = [x for x in tf.nest.flatten(node.outputs) if x.shape.rank == _DIMS]
        yield from filter(None, (_size_problem(f"layer {name}", x, dims) for x in outputs))


def _inner_model(layer: tf_keras.layers.Layer) -> Functional | None:
    rule = rule_of(layer)
    if isinstance(layer, Functional):
        return layer
    return rule.inner(layer) if rule is not None and rule.inner is not None else None


def _find_inner_problems(
    node: Any, inner: Functional, partitioned: set[str], dims: Sequence[int], path: str
) -> Iterator[str]:
    within = {
        str(id(reference))
        for reference, name in zip(inner.inputs, node.flat_input_ids, strict=True)
        if name in partitioned
    }
    yield from _find_problems(inner, within, dims, path)
    for name, output in zip(node.flat_output_ids, inner.outputs, strict=True):
        if str(id(output)) in within:
            partitioned.add(name)


def _refusal(layer: tf_keras.layers.Layer) -> str | None:
    rule = rule_of(layer)
    if rule is None:
        return (
            "has no partitioning rule, and gathering its parts would use the memory that "
            "partitioning saves. Add a rule with orbit_runner.distribute.spatial.register"
        )
    if getattr(layer, "activity_regularizer", None) is not None:
        return "has an activity regularizer, whose loss each part would add"
    return rule.refusal(layer)


def _size_problem(name: str, tensor: Any, dims: Sequence[int]) -> str | None:
    for side, size, parts in zip(("high", "wide"), tensor.shape[1:3], dims[1:3], strict=True):
        if size is not None and size < parts:
            return f"{name}: {size} pixel{'s' * (size != 1)} {side}, but split into {parts} parts"
    return None
