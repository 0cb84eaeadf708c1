"""The names of variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf


def variable_name(variable: tf.Variable) -> str:
    """Returns the name of a variable, such as `dense/kernel`, without the number of its output."""
    return str(variable.name).partition(":")[0]
