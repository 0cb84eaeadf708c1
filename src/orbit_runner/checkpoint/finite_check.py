"""Finds NaN and infinity in the weights of a model and in the tensors of a checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from orbit_runner.utils.variables import variable_name

# A loss scale may overflow, and the learning rate in an optimizer is a copy of its schedule's.
_NOT_TRAINED_PART = frozenset({"loss_scale", "_current_learning_rate"})


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
    if value.dtype == object or not _is_inexact(value.dtype):
        return 0
    finite = np.isfinite(value)
    return 0 if finite.all() else int(finite.size - np.count_nonzero(finite))


def _is_inexact(dtype: np.dtype) -> bool:
    kind = tf.as_dtype(dtype)  # NumPy does not treat bfloat16 as floating-point.
    return bool(kind.is_floating or kind.is_complex)


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
