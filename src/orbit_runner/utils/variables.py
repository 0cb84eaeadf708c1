"""The names and sizes of variables."""

from __future__ import annotations

from collections.abc import Iterable

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
