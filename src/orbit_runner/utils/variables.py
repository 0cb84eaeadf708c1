"""The names, sizes and values of variables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import tensorflow as tf


def variable_name(variable: tf.Variable) -> str:
    """Returns the name of a variable, such as `dense/kernel`, without the number of its output."""
    return str(variable.name).partition(":")[0]


def tracked_variables(root: tf.Module | tf.train.Checkpoint) -> list[tf.Variable]:
    """Returns the variables of a model or a checkpoint, also those outside of layers."""
    objects = tf.train.TrackableView(root).descendants()
    return [trackable for trackable in objects if isinstance(trackable, tf.Variable)]


def variable_bytes(variables: Iterable[tf.Variable]) -> int:
    """Returns the bytes of variables, each counted once."""
    distinct = {id(variable): variable for variable in variables}.values()
    return sum(variable.shape.num_elements() * variable.dtype.size for variable in distinct)


def replica_parts(variable: tf.Variable) -> tuple[tf.Variable, ...]:
    """Returns the variable of each replica of this process, or the variable itself."""
    return tuple(getattr(variable, "values", (variable,)))


@contextlib.contextmanager
def kept_values_scope(variables: Sequence[tf.Variable]) -> Iterator[None]:
    """Restores the values of variables after a `with` block, to the same bits on each replica."""
    parts = [part for variable in variables for part in replica_parts(variable)]
    values = [part.numpy() for part in parts]
    try:
        yield
    finally:
        for part, value in zip(parts, values, strict=True):
            part.assign(value)
