"""Lets a device compute what one of several mirrored replicas would compute, bit for bit.

Two things that the code of a task sees depend on the strategy: the number of replicas by which it
divides its loss, and how it reads rows of a variable. TensorFlow gathers the rows of a mirrored
variable with a different op than those of other variables, so it adds the gradients in another
order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextvars import ContextVar

import tensorflow as tf

from orbit_runner.determinism.patches import install, set_scope
from orbit_runner.tf_internals import replace_functions

# The number of mirrored replicas in a scope, 0 outside.
_count: ContextVar[int] = ContextVar("count", default=0)


def logical_replica_scope(count: int) -> contextlib.AbstractContextManager[None]:
    """Makes code in a `with` block compute as one of `count` mirrored replicas, on any device.

    Only for code without reductions over replicas, which ask the devices.
    """
    install("logical_replica", _install_patches)
    return set_scope(_count, count)


def _install_patches() -> None:
    replace_functions(
        {
            "replica_count": _replace_count,
            "variable_sparse_read": _refuse,
            "variable_gather_nd": _refuse,
        }
    )


def _replace_count(original: property) -> property:
    def count(self: tf.distribute.Strategy) -> int:
        return _count.get() or original.__get__(self)

    return property(count, doc=original.__doc__)


def _refuse(original: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Returns a method to read rows that fails in a `logical_replica_scope`."""

    def read(self: tf.Variable, *args: object, **kwargs: object) -> tf.Tensor:
        if _count.get():
            # `tf.gather` then reads the whole variable, as it does for mirrored variables.
            raise AttributeError(original.__name__)
        return original(self, *args, **kwargs)

    return read
