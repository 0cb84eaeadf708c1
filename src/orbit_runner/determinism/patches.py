"""The list of the patches of libraries, which stay until the process ends.

There is no public way to do the same. Outside of the scope or the setting of a patch, each
replacement calls the original. The patch here lets a device compute what one of several mirrored
replicas would compute, bit for bit.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

from orbit_runner.tf_internals import replace_functions

if TYPE_CHECKING:
    import tensorflow as tf

_T = TypeVar("_T")

# What each patch does, by the module of this package that installs it.
PATCHES = {
    "scopes": "TensorFlow's random ops draw with the key of a scope",
    "scopes of Keras 3": "the random draws of Keras 3 do, too",
    "keras_3": "replicas have values of their own of variables that have no gradients",
    "portable_ops": "ops with approximate instructions become square roots and divisions",
    "gradient_patches": "gradients without a deterministic kernel become other ops",
    "patches": "a device computes what one of several replicas would",
    "loading": "the classes of Model Garden's configs remember their annotations",
}
_lock = threading.Lock()
_installed: set[str] = set()


def install(patch: str, replace: Callable[[], None]) -> None:
    """Calls `replace`, which installs one of `PATCHES`, unless it is installed already."""
    assert patch in PATCHES
    with _lock:
        if patch not in _installed:
            replace()
            _installed.add(patch)


@contextlib.contextmanager
def set_scope(variable: ContextVar[_T], value: _T) -> Iterator[None]:
    """Sets what the replacements ask, in a `with` block.

    It has its default in other threads: `MirroredStrategy` traces each replica in one of its own.
    """
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


# The number of mirrored replicas in a scope, 0 outside.
_count: ContextVar[int] = ContextVar("count", default=0)


@contextlib.contextmanager
def logical_replica_scope(count: int) -> Iterator[None]:
    """Makes code in a `with` block compute as one of `count` mirrored replicas, on any device.

    Two things that the code of a task sees depend on the strategy: the number of replicas by which
    it divides its loss, and how it reads rows of a variable. TensorFlow gathers the rows of a
    mirrored variable with a different op than those of other variables, so it adds the gradients in
    another order. Only for code without reductions over replicas, which ask the devices.
    """
    install("patches", _install_patches)
    with set_scope(_count, count):
        yield


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
