"""Lets a device compute what one of several mirrored replicas would compute, bit for bit.

Two things that the code of a task sees depend on the strategy: the number of replicas by which it
divides its loss, and how it reads rows of a variable. TensorFlow gathers the rows of a mirrored
variable with a different op than those of other variables, so it adds the gradients in another
order.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import tensorflow as tf

from orbit_runner.tf_internals import replace_functions

_lock = threading.Lock()
_installed = False


class _Counts(threading.local):
    """Per thread, because `MirroredStrategy` traces each replica in a separate thread."""

    def __init__(self) -> None:
        self.active: list[int] = []


_counts = _Counts()


@contextlib.contextmanager
def logical_replica_scope(count: int) -> Iterator[None]:
    """Makes code in a `with` block compute as one of `count` mirrored replicas, on any device.

    Only for code without reductions over replicas, which ask the devices.
    """
    _install()
    _counts.active.append(count)
    try:
        yield
    finally:
        _counts.active.pop()


def _install() -> None:
    """Replaces methods once per process; there is no public way to do the same."""
    global _installed
    with _lock:
        if not _installed:
            _replace_count()
            replace_functions({"variable_sparse_read": _refuse, "variable_gather_nd": _refuse})
            _installed = True


def _replace_count() -> None:
    owner: type[tf.distribute.Strategy] = next(
        cls for cls in tf.distribute.Strategy.__mro__ if "num_replicas_in_sync" in vars(cls)
    )
    original = vars(owner)["num_replicas_in_sync"]

    def count(self: tf.distribute.Strategy) -> int:
        return _counts.active[-1] if _counts.active else original.fget(self)

    owner.num_replicas_in_sync = property(count, doc=original.__doc__)


def _refuse(original: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Returns a method to read rows that fails in a `logical_replica_scope`."""

    def read(self: tf.Variable, *args: object, **kwargs: object) -> tf.Tensor:
        if _counts.active:
            # `tf.gather` then reads the whole variable, as it does for mirrored variables.
            raise AttributeError(original.__name__)
        return original(self, *args, **kwargs)

    return read
