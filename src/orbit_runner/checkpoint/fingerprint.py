"""Fingerprints of tensors, where equal ones mean equal bits, and whether tensors are finite.

A fingerprint is the SHA-256 of sorted lines, one per tensor (name, dtype, shape, SHA-256 of its
bytes). It is the same for variables in memory and for a checkpoint on the disk, and two runs that
differ can be compared tensor by tensor.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from orbit_runner.storage.paths import readable_path
from orbit_runner.tf_internals import OBJECT_GRAPH, TrackableObjectGraph
from orbit_runner.utils.variables import tracked_variables, variable_name

# TensorFlow counts the saves here. A resumed run has made fewer of them.
_SAVE_COUNTER = "save_counter/"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
# A loss scale may overflow, and the learning rate in an optimizer is a copy of its schedule's.
_NOT_TRAINED_PART = frozenset({"loss_scale", "_current_learning_rate"})


def fingerprint(lines: Iterable[str]) -> str:
    """Returns the SHA-256 of the lines of tensors, in any order, as 64 hexadecimal digits."""
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def tensor_line(name: str, value: np.ndarray) -> str:
    """Returns the line of one tensor: its name, dtype, shape, and the SHA-256 of its bytes."""
    return f"{name} {_digest(value)}"


def _digest(value: np.ndarray) -> str:
    data = np.ascontiguousarray(value)
    content = data.tobytes() if data.dtype != object else repr(data.tolist()).encode()
    return f"{data.dtype.str} {value.shape} {hashlib.sha256(content).hexdigest()}"


def weights_fingerprint(model: tf.Module) -> str:
    """Returns the fingerprint of a model's weights, by variable names."""
    return fingerprint(
        tensor_line(variable_name(variable), variable.numpy())
        for variable in tracked_variables(model)
    )


@dataclasses.dataclass(frozen=True)
class NonFiniteTensor:
    """A tensor with values that are NaN or infinite."""

    name: str
    count: int  # The number of values that are not finite.
    size: int  # The number of all values.

    def __str__(self) -> str:
        return f"{self.name}: {self.count:,} of {self.size:,} values are not finite"


def is_trained(key: str) -> bool:
    """Returns whether a checkpoint key belongs to a weight, a slot or an average."""
    return _NOT_TRAINED_PART.isdisjoint(key.partition("/.ATTRIBUTES/")[0].split("/"))


def count_non_finite(value: np.ndarray) -> int:
    """Returns how many values are NaN or infinite. Integers and strings are always finite."""
    if value.dtype == object:
        return 0
    kind = tf.as_dtype(value.dtype)  # NumPy does not treat bfloat16 as floating-point.
    if not (kind.is_floating or kind.is_complex):
        return 0
    finite = np.isfinite(value)
    return 0 if finite.all() else int(finite.size - np.count_nonzero(finite))


def non_finite_variables(variables: Iterable[tf.Variable]) -> list[NonFiniteTensor]:
    """Returns the variables with values that are NaN or infinite."""
    tensors = []
    for variable in variables:
        if variable.dtype.is_floating or variable.dtype.is_complex:
            value = np.asarray(variable.numpy())
            if count := count_non_finite(value):
                tensors.append(NonFiniteTensor(variable_name(variable), count, value.size))
    return tensors


def describe_non_finite(tensors: Sequence[NonFiniteTensor]) -> str:
    """Returns one line about tensors that are not finite, or "" if there are none."""
    if not tensors:
        return ""
    more = len(tensors) - 1
    return f"{tensors[0]}" + (f", and {more} more tensor{'s' * (more > 1)}" if more else "")


@dataclasses.dataclass(frozen=True)
class ContentSummary:
    """The fingerprints and the non-finite tensors of a checkpoint."""

    weights: str  # Fingerprint of the weights, equal to that of the model in memory.
    state: str  # Fingerprint of all tensors, by checkpoint keys.
    non_finite: tuple[NonFiniteTensor, ...] = ()  # Weights, slots and averages only.


class CheckpointContent:
    """The tensors of a checkpoint on the disk."""

    def __init__(self, prefix: str | Path) -> None:
        self._reader = tf.train.load_checkpoint(readable_path(prefix))
        self.graph = TrackableObjectGraph()
        self.graph.ParseFromString(self._reader.get_tensor(OBJECT_GRAPH))

    def tensor(self, key: str) -> np.ndarray:
        """Returns the tensor of a checkpoint key."""
        return self._reader.get_tensor(key)

    def state_keys(self) -> list[str]:
        """Returns the keys of all tensors except TensorFlow's save counter, sorted."""
        keys = (key for key in self._reader.get_variable_to_shape_map() if key != OBJECT_GRAPH)
        return sorted(key for key in keys if not key.startswith(_SAVE_COUNTER))

    def weights(self) -> dict[str, str]:
        """Returns the variable names of the model's weights by checkpoint key."""
        nodes = self.graph.nodes
        queue = [child.node_id for child in nodes[0].children if child.local_name == "model"]
        seen = set(queue)
        names = {}
        while queue:
            node = nodes[queue.pop()]
            for attribute in node.attributes:
                if attribute.checkpoint_key.endswith(_VALUE):  # Lookup tables have other keys.
                    names[attribute.checkpoint_key] = attribute.full_name
            new = [child.node_id for child in node.children if child.node_id not in seen]
            seen.update(new)
            queue += new
        return names

    def summary(self) -> ContentSummary:
        """Reads each tensor once; returns the fingerprints and the non-finite tensors."""
        weights = self.weights()
        names = names_by_key(self.graph)
        digests = dict[str, str]()
        non_finite = []
        # Weights come before the slots that depend on them, because the first tensor is reported.
        for key in sorted(self.state_keys(), key=lambda key: key not in weights):
            value = self.tensor(key)
            digests[key] = _digest(value)
            if is_trained(key) and (count := count_non_finite(np.asarray(value))):
                non_finite.append(NonFiniteTensor(names.get(key, key), count, np.size(value)))
        return ContentSummary(
            fingerprint(f"{name} {digests[key]}" for key, name in weights.items()),
            fingerprint(f"{key} {digest}" for key, digest in digests.items()),
            tuple(non_finite),
        )


def names_by_key(graph: TrackableObjectGraph) -> dict[str, str]:
    """Returns the names of the variables in a graph of saved objects, by checkpoint keys."""
    attributes = (attribute for node in graph.nodes for attribute in node.attributes)
    return {
        attribute.checkpoint_key: attribute.full_name or attribute.checkpoint_key
        for attribute in attributes
    }


# What TensorFlow raises for files that it cannot read or parse.
READ_ERRORS = (OSError, ValueError, IndexError, RuntimeError, tf.errors.OpError)
