"""The names and sizes of variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf


def variable_name(variable: tf.Variable) -> str:
    """Returns the name of a variable, such as `dense/kernel`, without the number of its output."""
    return str(variable.name).partition(":")[0]


def variable_bytes(variables: Iterable[tf.Variable]) -> int:
    """Returns the bytes of variables, each counted once."""
    distinct = {id(variable): variable for variable in variables}.values()
    return sum(variable.shape.num_elements() * variable.dtype.size for variable in distinct)
