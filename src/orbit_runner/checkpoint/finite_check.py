"""Finds NaN and infinity in the weights of a model and in the tensors of a checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from orbit_runner.distribute.sharded_variables import name_of
from orbit_runner.errors import Diverged

# Results that a run remembers begin as NaN, a loss scale may overflow, and the rate that an
# optimizer keeps is a copy of what its schedule says.
_NOT_TRAINED = frozenset({"best", "early_stopping", "recoveries", "global_step"})
_NOT_TRAINED_PART = frozenset({"loss_scale", "_current_learning_rate"})


@dataclasses.dataclass(frozen=True)
class NonFiniteTensor:
    """A tensor with values that are NaN or infinite.

    Attributes:
        name: The name of the variable.
        count: How many of its values are not finite.
        size: How many values it has.
    """

    name: str
    count: int
    size: int

    def __str__(self) -> str:
        return f"{self.name}: {self.count:,} of {self.size:,} values are not finite"


def is_trained(key: str) -> bool:
    """Returns whether a tensor of a checkpoint is a weight, a slot or an average.

    Args:
        key: Its key in the checkpoint.
    """
    parts = key.partition("/.ATTRIBUTES/")[0].split("/")
    return parts[0] not in _NOT_TRAINED and not _NOT_TRAINED_PART.intersection(parts)


def count_non_finite(value: np.ndarray) -> int:
    """Returns how many values of an array are NaN or infinite.

    Args:
        value: An array of any shape and type; integers and strings are always finite.
    """
    if value.dtype == object or not _is_inexact(value.dtype):
        return 0
    finite = np.isfinite(value)
    return 0 if finite.all() else int(finite.size - np.count_nonzero(finite))


def _is_inexact(dtype: np.dtype) -> bool:
    kind = tf.as_dtype(dtype)  # numpy does not know bfloat16 as a floating-point type.
    return bool(kind.is_floating or kind.is_complex)


def non_finite_variables(variables: Iterable[Any]) -> list[NonFiniteTensor]:
    """Returns those of some variables that have values which are NaN or infinite.

    Args:
        variables: The variables.
    """
    found = []
    for variable in variables:
        if variable.dtype.is_floating or variable.dtype.is_complex:
            value = np.asarray(variable.numpy())
            if count := count_non_finite(value):
                found.append(NonFiniteTensor(name_of(variable), count, value.size))
    return found


def describe_non_finite(found: Sequence[NonFiniteTensor]) -> str:
    """Returns one line about tensors that are not finite; "" where there are none.

    Args:
        found: The tensors.
    """
    if not found:
        return ""
    more = len(found) - 1
    return f"{found[0]}" + (f", and {more} more tensor{'s' * (more > 1)}" if more else "")


def non_finite_error(step: int, found: Sequence[NonFiniteTensor]) -> Diverged:
    """Returns the error for weights, slots or averages that are not finite.

    Args:
        step: The global step.
        found: The tensors.
    """
    return Diverged(
        f"the weights of step {step} are not finite, and no checkpoint was saved "
        f"({describe_non_finite(found)})"
    )
